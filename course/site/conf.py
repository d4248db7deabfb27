"""Sphinx's settings for the course's site.

`course.site.build` makes the source tree and calls Sphinx on it.
"""

project = "PyTorch Speed Lab"
html_title = project
author = "the Speed Lab's authors"
extensions = ["myst_nb", "sphinx.ext.mathjax"]
exclude_patterns = ["files"]
language = "en"

nb_execution_mode = (
    # the pages hold what was recorded; a build must not depend on the machine it runs on
    "off"
)
nb_merge_streams = True
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
# course/site/build.py puts it there: formulas need no network, neither now nor when read
mathjax_path = "tex-svg.js"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["focus.js"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
