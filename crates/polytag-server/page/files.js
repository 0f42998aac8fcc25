// A file of documents, read to be tagged and written back with its labels: CSV or JSON lines.
// What came in goes out as it was, with the labels added; only `labels` and its companions are new.

import { readCsv, writeCsv } from './csv.js';

/** What `polytag import csv` splits labels by. */
const SEPARATOR = ';';

/** A file that cannot be read as documents, with what to do about it. */
class FileError extends Error {
  constructor(message, remedy) {
    super(message);
    this.remedy = remedy;
  }
}

/**
 * The documents of a file: `{ format, columns, documents, write }`. A document that cannot be read is `{ error }`.
 * `write(results)` gives the file with a result for each document: `{ labels }`, `{ error }` or undefined.
 */
export function readDocuments(name, content) {
  if (content.trim() === '')
    throw new FileError('The file is empty.', 'Choose a file with a document a line.');
  const isJson =
    /\.(jsonl|ndjson|json)$/i.test(name) || (!/\.[ct]sv$/i.test(name) && content.trimStart().startsWith('{'));
  return isJson ? readJsonLines(content) : readTable(content);
}

function readTable(content) {
  const { rows, dialect } = readCsv(content);
  const [header, ...body] = rows;
  const columns = header.map((cell) => cell.trim());
  const column = (wanted) => columns.findIndex((name) => name.toLowerCase() === wanted);
  const [text, title] = [column('text'), column('title')];
  if (text < 0)
    throw new FileError(
      `There is no column “text” among: ${columns.join(', ')}.`,
      'Name the column with the texts “text” in the first line.',
    );
  if (body.length === 0)
    throw new FileError('There is a header but no document.', 'Add a document a line below it.');
  const documents = body.map((cells) => documentOf(cells[text] ?? '', cells[title]));
  return {
    format: 'CSV',
    columns,
    documents,
    write: (results) => writeTable(header, body, dialect, results),
  };
}

function writeTable(header, body, dialect, results) {
  const width = header.length;
  const hasErrors = results.some((result) => result?.error);
  const added = ['labels', 'label_names', 'label_scores', ...(hasErrors ? ['label_error'] : [])];
  const isTaken = (name) => header.some((cell) => cell.trim().toLowerCase() === name);
  const names = added.map((name) => (isTaken(name) ? `polytag_${name}` : name));
  const rows = body.map((cells, index) => {
    const padded = [...cells, ...Array(Math.max(0, width - cells.length)).fill('')];
    return [...padded, ...cellsOf(results[index]).slice(0, added.length)];
  });
  return writeCsv([[...header, ...names], ...rows], dialect);
}

function cellsOf(result) {
  const labels = result?.labels ?? [];
  const joined = (write) => labels.map(write).join(SEPARATOR);
  return [
    joined(({ id }) => id),
    joined(({ name }) => name),
    joined(({ score }) => score.toFixed(4)),
    result?.error ?? '',
  ];
}

function readJsonLines(content) {
  const end = content.includes('\r\n') ? '\r\n' : '\n';
  const lines = content
    .replace(/^\ufeff/, '')
    .split(/\r?\n/)
    .filter((line) => line.trim() !== '');
  const records = lines.map(parsed);
  if (!records.some((record) => typeof record?.text === 'string')) {
    throw new FileError(
      'No line is a JSON object with a field “text”.',
      'A line is {"id", "title"?, "text"}.',
    );
  }
  const documents = records.map((record, index) => {
    if (typeof record?.text === 'string') return documentOf(record.text, record.title);
    return { error: `Line ${index + 1} is not a JSON object with a field “text”.` };
  });
  const columns = Object.keys(records.find((record) => typeof record?.text === 'string'));
  const write = (results) =>
    lines.map((line, index) => writtenLine(line, records[index], results[index]) + end).join('');
  return { format: 'JSON lines', columns, documents, write };
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

/** The line with a field more. It is added to the text of the line, so that large numbers stay as they were. */
function writtenLine(line, record, result) {
  if (result?.error && typeof record?.text !== 'string') return JSON.stringify({ line, error: result.error });
  if (!result) return line;
  const name = result.error ? 'label_error' : 'labels';
  const field = name in record ? `polytag_${name}` : name;
  const labels = result.labels?.map(({ id, name: ownName, score, seen }) => ({
    id,
    name: ownName,
    score,
    seen,
  }));
  return `${line.trimEnd().slice(0, -1)},${JSON.stringify(field)}:${JSON.stringify(result.error ?? labels)}}`;
}

function documentOf(text, title) {
  return typeof title === 'string' && title.trim() !== '' ? { title, text } : { text };
}
