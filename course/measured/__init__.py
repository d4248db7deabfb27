"""The explorables' pictures, drawn from what the reader's own machine did."""
