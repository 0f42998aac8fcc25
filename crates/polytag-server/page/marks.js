// From marks to pieces of text: the server counts in bytes of UTF-8, JavaScript in units of UTF-16.
// Pure functions; nothing of the page is touched.

/** How many bytes UTF-8 takes for a code point. */
function bytesOf(code) {
  if (code < 0x80) return 1;
  if (code < 0x800) return 2;
  return code < 0x10000 ? 3 : 4;
}

/** A function from byte offsets, asked in ascending order, to indexes into the string. */
export function indexesByByte(text) {
  let [bytes, index] = [0, 0];
  return (offset) => {
    while (bytes < offset && index < text.length) {
      const code = text.codePointAt(index);
      bytes += bytesOf(code);
      index += code > 0xffff ? 2 : 1;
    }
    return index;
  };
}

/** What a mark is judged by: attention where labels attend, else what it adds to the score. */
function force(mark) {
  return mark.attention ?? mark.weight;
}

/** The pieces of a text in order, each with its strength from -1 to 1; unmarked pieces have 0. */
export function pieces(text, marks) {
  const indexOf = indexesByByte(text);
  const inOrder = [...marks].sort((a, b) => a.start - b.start);
  return cut(
    text,
    inOrder.map((mark) => ({ from: indexOf(mark.start), to: indexOf(mark.end), mark })),
  );
}

/** The same where only words are known, and not where they stand: every place where they do is marked. */
export function piecesOfReasons(text, reasons) {
  const places = reasons.flatMap((reason) =>
    [...text.matchAll(asWords(reason.words))].map(({ index, 0: { length } }) => ({
      from: index,
      to: index + length,
      mark: reason,
    })),
  );
  // Where two reasons meet, the longer run of words is shown.
  return cut(
    text,
    places.sort((a, b) => a.from - b.from || b.to - a.to),
  );
}

/** An expression for words as they stand in a text: whole, in any case, with anything but letters between them. */
function asWords(words) {
  const escaped = words.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  if (escaped.length === 0) return /(?!)/gu;
  return new RegExp(`(?<![\\p{L}\\p{N}])${escaped.join('[^\\p{L}\\p{N}]+')}(?![\\p{L}\\p{N}])`, 'giu');
}

/** Cuts a text at places that ascend; one that begins before the last has ended keeps what is left of it. */
function cut(text, places) {
  const most = Math.max(0, ...places.map(({ mark }) => Math.abs(force(mark))));
  const found = [];
  let end = 0;
  for (const place of places) {
    const from = Math.max(end, place.from);
    const to = Math.max(from, place.to);
    if (from > end) found.push({ text: text.slice(end, from), strength: 0 });
    if (to > from) {
      const strength = most > 0 ? force(place.mark) / most : 0;
      found.push({ text: text.slice(from, to), strength, mark: place.mark });
    }
    end = to;
  }
  if (end < text.length) found.push({ text: text.slice(end), strength: 0 });
  return found;
}
