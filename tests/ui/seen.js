// The visible part of the page: its elements within the screen and within the areas that scroll around them.
(what) => {
  const controls = 'a[href], button, input, select, textarea, summary, [role=slider], [tabindex="0"]:not(.sd-token, [role=region])';
  const inside = (e, r) => {
    const [x, y] = [(r.left + r.right) / 2, (r.top + r.bottom) / 2];
    if (x < 0 || y < 0 || x > innerWidth || y > innerHeight) return false;
    for (let box = e.parentElement; box; box = box.parentElement) {
      if (getComputedStyle(box).overflow === "visible") continue;
      const b = box.getBoundingClientRect();
      if (x < b.left || x > b.right || y < b.top || y > b.bottom) return false;
    }
    return true;
  };
  const seen = (e) => {
    const r = e.getBoundingClientRect();
    return e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && r.width > 2 && r.height > 2 && inside(e, r);
  };
  const name = (e) => `${e.tagName} ${e.id || e.className} ${(e.innerText || e.ariaLabel || "").slice(0, 40)}`;
  const all = [...document.querySelectorAll("body *")].filter(seen);
  const texts = (e) => [...e.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent);

  if (what === "covered")
    return all.filter((e) => e.matches(`${controls}, .sd-headline, .sd-badge, .sd-count, .sd-picture-said`)).filter((e) => {
      const r = e.getBoundingClientRect();
      const on = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
      return on && !e.contains(on) && !on.contains(e) && !on.closest("label")?.contains(e);
    }).map(name);
  // A menu says nothing of its overflow: its arrow has 16 pixels.
  const narrow = (e, style) => {
    const drawing = document.createElement("canvas").getContext("2d");
    drawing.font = style.font;
    const text = drawing.measureText(e.selectedOptions[0]?.text ?? "").width;
    return text > e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16;
  };
  if (what === "cut")
    return all.filter((e) => {
      const style = getComputedStyle(e);
      if (e.matches("select")) return narrow(e, style);
      if (!texts(e).some((text) => text.trim())) return false;
      const wide = style.overflowX === "hidden" && e.scrollWidth > e.clientWidth + 1 && style.textOverflow !== "ellipsis";
      if (style.webkitLineClamp !== "none") return false; // it ends with an ellipsis
      return wide || (style.overflowY === "hidden" && e.scrollHeight > e.clientHeight + 2);
    }).map(name);
  const said = all.filter((e) => !e.closest(".sd-answer, .sd-plain-text, .sd-asked, .sd-guesses, select, svg"));
  return [
    all.filter((e) => e.matches(controls) && !e.disabled).map(name),
    said.flatMap((e) => texts(e).join(" ").split(/\s+/).filter((word) => /\p{L}/u.test(word))),
  ];
}
