"use strict";

// Texts of the document are only ever set as text: nothing in it becomes markup.
function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function folded(title, value) {
  const details = element("details");
  details.append(element("summary", title), element("pre", JSON.stringify(value, null, 2)));
  return details;
}

function resolved(spec, value) {
  while (value && value.$ref) {
    value = value.$ref.slice(2).split("/").reduce(
      (found, key) => found && found[decodeURIComponent(key).replace(/~1/g, "/").replace(/~0/g, "~")], spec);
  }
  return value || {};
}

function section(spec, title, action) {
  const parts = [element("h2", title)];
  for (const operation of Object.values(spec.operations || {})) {
    if (operation.action !== action) continue;
    const channel = resolved(spec, operation.channel);
    parts.push(element("h3", channel.address || ""));
    if (channel.description) parts.push(element("p", channel.description));
    for (const message of (operation.messages || []).map((each) => resolved(spec, each))) {
      parts.push(folded("payload", resolved(spec, message.payload)));
    }
  }
  return parts;
}

async function show() {
  const spec = await (await fetch("asyncapi.json")).json();
  document.title = spec.info.title;
  document.querySelector("h1").textContent = spec.info.title;
  document.getElementById("operations").append(
    ...section(spec, "Hears and answers", "receive"), ...section(spec, "Says", "send"));
  document.getElementById("schemas").append(
    ...Object.entries((spec.components || {}).schemas || {}).map(([name, schema]) => folded(name, schema)));
}

show();
