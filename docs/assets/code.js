// A line of code that is too long goes on below, but browsers would also end it between the two hyphens of an option.
document$.subscribe(() => {
  for (const code of document.querySelectorAll(":not(pre) > code"))
    if (code.textContent.length <= 24) code.classList.add("whole");
  for (const code of document.querySelectorAll("pre > code")) {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts) {
      const parts = text.data.split(/(?<=\s|^)(--[a-z][\w-]*)/);
      if (parts.length === 1) continue;
      text.replaceWith(...parts.map((part, number) => {
        if (number % 2 === 0) return part;
        const option = document.createElement("span");
        option.className = "whole";
        option.textContent = part;
        return option;
      }));
    }
  }
});
