// Keeps the page as the market is: the server says when it has something newer (server-sent
// events), this asks for the page's main part and changes what differs in place, so that focus,
// selection and scrolling stay. Keys: / goes to the search, j and k to the next and previous row.
"use strict";
(() => {
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  let busy = false, again = false, last = "";

  const say = (text) => { if (live.textContent !== text) live.textContent = text; };

  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE || old.isEqualNode(fresh)) return;
    if (old === document.activeElement && /^(INPUT|SELECT)$/.test(old.nodeName)) return;
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const before = [...old.childNodes], after = [...fresh.childNodes];
    after.forEach((child, i) => before[i] ? morph(before[i], child) : old.append(child));
    before.slice(after.length).forEach((child) => child.remove());
  }

  async function refresh() {
    if (document.hidden) return;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Souk-Part": "main" } });
      const text = await answer.text();
      if (!answer.ok) {
        const part = new DOMParser().parseFromString(text, "text/html");
        say(part.querySelector("p")?.textContent ?? "the market does not answer");
      } else {
        if (text !== last) {
          const part = new DOMParser().parseFromString(text, "text/html");
          const fresh = main.cloneNode(false);
          fresh.append(...part.body.childNodes);
          morph(main, fresh);
          last = text;
        }
        say("live");
      }
    } catch {
      say("souk-web does not answer; it is tried again");
    }
    busy = false;
    if (again) { again = false; refresh(); }
  }

  const events = new EventSource("/events");
  events.addEventListener("tick", refresh);
  events.addEventListener("trouble", (event) => say(event.data));
  events.onerror = () => say("souk-web does not answer; it is tried again");
  document.addEventListener("visibilitychange", refresh);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.nodeName)) return;
    if (event.key === "/") {
      const input = main.querySelector("input");
      if (input) { event.preventDefault(); input.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const links = [...main.querySelectorAll("tbody tr td:first-child a")];
      const row = document.activeElement.closest?.("tr");
      const at = links.findIndex((link) => link.closest("tr") === row);
      const next = event.key === "j" ? at + 1 : Math.max(at - 1, 0);
      links[Math.min(next, links.length - 1)]?.focus();
    }
  });
})();
