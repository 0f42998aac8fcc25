// Making elements and writing for people. Every text goes in as text, never as markup, so that a label
// named like a script stays a name. Touches the document only where it is told to.

/** An element with attributes and children; strings become text. An attribute that is null or false is left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element, likewise. */
export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A text somebody else wrote, in an element that keeps its direction to itself. */
export function foreign(tag, text, attributes = {}) {
  return make(tag, { dir: 'auto', ...attributes }, visible(text));
}

/** A button that does one thing. */
export function button(text, onClick, attributes = {}) {
  const element = make('button', { type: 'button', ...attributes }, text);
  element.addEventListener('click', onClick);
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/**
 * The text with control characters drawn rather than obeyed, those that force its direction among them.
 * Line ends and tabs stay.
 */
export function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202d\u202e]/g, (character) => {
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? '\u2421' : '\ufffd';
  });
}

/** A name within a sentence, quoted, whichever way either is written. */
export function quotedName(name) {
  return `“\u2068${visible(name)}\u2069”`;
}

/** Tells those who listen rather than look. */
export function announce(sentence) {
  byId('announcer').textContent = visible(sentence);
}

/** Says in words what went wrong, at the place where it did, with what can be done about it. */
export function showTrouble(place, error, retry = null) {
  const box = make('div', { class: 'trouble', role: 'alert', 'data-test': 'trouble' });
  box.append(foreign('p', error.message));
  if (error.remedy) box.append(foreign('p', error.remedy, { class: 'soft' }));
  if (retry) box.append(button('Try again', retry));
  place.replaceChildren(box);
}

export function clear(place) {
  place.replaceChildren();
}

/** Sets a length of an element as a share of its parent, from 0 to 1. */
export function setShare(element, share) {
  element.style.setProperty('--share', String(Math.min(1, Math.max(0, share || 0))));
}

const COUNT = new Intl.NumberFormat('en');

export function count(number) {
  return COUNT.format(number);
}

/** "1 label", "2 labels". */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
}

/** A score as people read it: a probability in percent, any other with three digits. */
export function scoreText(score, isProbability) {
  return isProbability ? `${(100 * score).toFixed(1)} %` : threeDigits(score);
}

/** A number with three digits and a true minus sign. */
export function threeDigits(number) {
  return number.toFixed(3).replace('-', '−');
}

/** "seen" or "unseen", in words and in shape. */
export function seenMark(seen) {
  const meaning = seen ? 'Training documents carry this label' : 'No training document carries this label';
  return make('span', { class: seen ? 'badge' : 'badge unseen', title: meaning }, seen ? 'seen' : 'unseen');
}

/** Calls `act` once the calls have ceased for a while. */
export function debounced(act, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), milliseconds);
  };
}

/** The number in a field, or null where it is empty. */
export function numberIn(input) {
  return input.value.trim() === '' ? null : Number(input.value);
}

/** Lets files be dropped on a place; `take` gets the first. */
export function takeDrops(place, take) {
  const isFile = (event) => [...event.dataTransfer.types].includes('Files');
  place.addEventListener('dragover', (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    place.classList.add('dropping');
  });
  place.addEventListener('dragleave', () => place.classList.remove('dropping'));
  place.addEventListener('drop', (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    place.classList.remove('dropping');
    take(event.dataTransfer.files[0]);
  });
}

/** The text of a file, which must be UTF-8. */
export async function textOf(file) {
  const bytes = await file.arrayBuffer();
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw Object.assign(new Error(`${file.name} is not UTF-8 text.`), {
      remedy: 'Save it as UTF-8 and open it again.',
    });
  }
}
