"""One self-contained HTML page about one run or several."""
