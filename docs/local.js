// Opened as a file, the pages have no search: browsers let a page read its index from a server alone.
if (location.protocol === "file:")
  for (const button of document.querySelectorAll("label[for=__search].md-header__button")) button.hidden = true;
