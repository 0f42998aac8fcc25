// Comma-separated values, read and written: quotes, line ends within quotes, CRLF, a byte order mark,
// and semicolons or tabs where a spreadsheet wrote those. Pure functions.

/** The rows of a CSV text, with what is needed to write them back the same way. */
export function readCsv(content) {
  const mark = content.startsWith('\ufeff') ? '\ufeff' : '';
  const body = content.slice(mark.length);
  const delimiter = delimiterOf(body);
  const end = /^[^\n]*\r\n/.test(body) ? '\r\n' : '\n';
  return { rows: rowsOf(body, delimiter), dialect: { mark, delimiter, end } };
}

/** Rows as a CSV text in a dialect. */
export function writeCsv(rows, { mark, delimiter, end }) {
  const cell = (text) => (needsQuotes(text, delimiter) ? `"${text.replaceAll('"', '""')}"` : text);
  return mark + rows.map((row) => row.map(cell).join(delimiter) + end).join('');
}

function needsQuotes(text, delimiter) {
  return text.includes(delimiter) || /["\r\n]/.test(text) || text !== text.trim();
}

/** What separates the names of the header: the most frequent of comma, semicolon and tab. */
function delimiterOf(body) {
  const header = body.split(/\r?\n/, 1)[0];
  const frequency = (candidate) => header.split(candidate).length;
  return [',', ';', '\t'].reduce((best, candidate) =>
    frequency(candidate) > frequency(best) ? candidate : best,
  );
}

function rowsOf(body, delimiter) {
  const rows = [];
  let row = [];
  let [at, line] = [0, 1];
  const finishRow = () => {
    if (row.length > 1 || row[0] !== '') rows.push(row);
    row = [];
  };
  while (at < body.length) {
    const [cell, next] =
      body[at] === '"' ? quotedCell(body, at, { delimiter, line }) : plainCell(body, at, delimiter);
    row.push(cell);
    line += lineEndsIn(body, at, next);
    at = next;
    if (body[at] === delimiter) {
      at += 1;
      if (at === body.length) row.push('');
      continue;
    }
    at += body.startsWith('\r\n', at) ? 2 : 1;
    line += 1;
    finishRow();
  }
  if (row.length) finishRow();
  return rows;
}

function lineEndsIn(body, from, to) {
  let found = 0;
  for (let at = body.indexOf('\n', from); at >= 0 && at < to; at = body.indexOf('\n', at + 1)) found += 1;
  return found;
}

function plainCell(body, from, delimiter) {
  let end = from;
  while (end < body.length && body[end] !== delimiter && body[end] !== '\n' && body[end] !== '\r') end += 1;
  return [body.slice(from, end), end];
}

/** A cell in quotes; what stands between its last quote and the separator is kept, as spreadsheets do. */
function quotedCell(body, from, { delimiter, line }) {
  let text = '';
  let at = from + 1;
  for (;;) {
    const quote = body.indexOf('"', at);
    if (quote < 0) throw new Error(`A quote opened in line ${line} is never closed.`);
    text += body.slice(at, quote);
    if (body[quote + 1] !== '"') {
      const [rest, end] = plainCell(body, quote + 1, delimiter);
      return [text + rest, end];
    }
    text += '"';
    at = quote + 2;
  }
}
