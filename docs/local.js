// Opened as a file, the pages have no search: browsers let a page read its index from a server alone.
if (location.protocol === "file:") {
  for (const part of document.querySelectorAll("label[for=__search].md-header__button, .md-search")) part.remove();
  const note = document.createElement("span");
  note.className = "search-note";
  note.textContent = "Search works when the site is served: make docs-serve";
  document.querySelector(".md-header__inner")?.append(note);
}
