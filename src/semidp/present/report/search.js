// Shows the rows, or the folded parts, that hold what is typed above them.
for (const field of document.querySelectorAll(".find")) field.addEventListener("input", () => {
  const words = field.value.trim().toLowerCase(), line = field.closest("p"), next = line.nextElementSibling;
  const parts = next.matches(".branch") ? line.parentElement.querySelectorAll(":scope > .branch") : next.querySelectorAll("tbody tr");
  for (const part of parts) {
    const found = part.textContent.toLowerCase().includes(words);
    part.toggleAttribute("data-out", !found);
    if (part.matches("details")) part.open = found && words !== "";
  }
});
