"""The course as a site and as slides, made from the notebooks and the records without running
anything.
"""
