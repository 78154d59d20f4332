// The theme puts wide tables into boxes that scroll. The keyboard reaches only what can have the focus.
document$.subscribe(() =>
  setTimeout(() => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) box.tabIndex = 0
  })
)
