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
  const most = Math.max(0, ...marks.map((mark) => Math.abs(force(mark))));
  const found = [];
  let end = 0;
  for (const mark of [...marks].sort((a, b) => a.start - b.start)) {
    const from = Math.max(end, indexOf(mark.start));
    const to = Math.max(from, indexOf(mark.end));
    if (from > end) found.push({ text: text.slice(end, from), strength: 0 });
    if (to > from)
      found.push({ text: text.slice(from, to), strength: most > 0 ? force(mark) / most : 0, mark });
    end = to;
  }
  if (end < text.length) found.push({ text: text.slice(end), strength: 0 });
  return found;
}
