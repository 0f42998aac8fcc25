// The form that tries an operation: it sends the request, shows the answer, and gives the same as a curl line.

import { ROOT, attempt } from './api.js';
import { askForKey, storedKey } from './dialog.js';
import { button, clear, foreign, make, showTrouble } from './dom.js';

const MOST_SHOWN = 20000;

/** A form for an operation `{ id, method, path, parameters, body }`; `hints` fills in parameters by their name. */
export function tryForm(operation, schemas, hints) {
  const inputs = operation.parameters
    .filter((parameter) => parameter.in !== 'cookie')
    .map((parameter) => parameterInput(operation, parameter, schemas, hints));
  const body = operation.body && bodyInput(operation, schemas);
  const line = make('pre', {
    class: 'code wrap',
    tabindex: '0',
    'aria-label': 'As a curl line',
    'data-test': 'curl',
  });
  const answer = make('div', { class: 'stack tight', 'aria-live': 'polite' });
  const form = make(
    'form',
    { class: 'stack try', novalidate: true },
    ...inputs.map(({ row }) => row),
    body?.row,
    make(
      'div',
      { class: 'controls' },
      make('button', { type: 'submit', class: 'primary', 'data-test': 'try-send' }, 'Send'),
      copyButton(line),
    ),
    line,
    answer,
  );
  const request = () => requestOf(operation, inputs, body);
  const refresh = () => {
    line.textContent = curlLine(request());
  };
  form.addEventListener('input', refresh);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    sendAndShow(request(), answer);
  });
  refresh();
  return form;
}

function parameterInput(operation, parameter, schemas, hints) {
  const id = `${operation.id}-${parameter.in}-${parameter.name}`;
  const { enum: choices } = schemas.merged(parameter.schema);
  const input = choices
    ? make(
        'select',
        { id },
        make('option', { value: '' }, parameter.required ? '' : 'none'),
        ...choices.map((choice) => make('option', {}, String(choice))),
      )
    : make('input', { id, autocomplete: 'off', spellcheck: 'false' });
  if (parameter.in === 'path') input.value = hints[parameter.name] ?? parameter.example ?? '';
  const label = make(
    'label',
    { for: id },
    make('code', {}, parameter.name),
    ' ',
    make('span', { class: 'soft' }, parameter.in),
  );
  return { parameter, input, row: make('div', { class: 'field' }, label, input) };
}

function bodyInput(operation, schemas) {
  const [type, media] = preferred(operation.body.content);
  const input = make('textarea', {
    id: `${operation.id}-body`,
    rows: '8',
    class: 'code',
    spellcheck: 'false',
    'data-test': 'try-body',
  });
  const example = schemas.example(media);
  input.value = written(type, example);
  const label = make('label', { for: input.id }, 'Body ', make('span', { class: 'soft' }, type));
  return { type, input, row: make('div', { class: 'field' }, label, input) };
}

/** An example as a body of its type. */
function written(type, example) {
  if (typeof example === 'string') return example;
  if (type.includes('urlencoded')) return new URLSearchParams(Object.entries(example ?? {})).toString();
  return type.includes('ndjson') ? `${JSON.stringify(example)}\n` : JSON.stringify(example, null, 2);
}

function preferred(content) {
  return Object.entries(content).find(([type]) => type === 'application/json') ?? Object.entries(content)[0];
}

function requestOf(operation, inputs, body) {
  const given = (place) =>
    inputs
      .filter(({ parameter, input }) => parameter.in === place && input.value !== '')
      .map(({ parameter, input }) => [parameter.name, input.value]);
  const path = given('path').reduce(
    (filled, [name, value]) => filled.replace(`{${name}}`, encodeURIComponent(value)),
    operation.path,
  );
  const query = new URLSearchParams(given('query')).toString();
  return {
    method: operation.method.toUpperCase(),
    path: path.replace(/^\//, '') + (query && `?${query}`),
    headers: { ...Object.fromEntries(given('header')), ...(body && { 'Content-Type': body.type }) },
    body: body?.input.value,
  };
}

/** The request for a shell. The key itself is not written out. */
function curlLine({ method, path, headers, body }) {
  const parts = ['curl', ...(method === 'GET' ? [] : ['-X', method]), quoted(new URL(path, ROOT).href)];
  const sent = storedKey() ? { Authorization: 'Bearer $POLYTAG_KEY', ...headers } : headers;
  for (const [name, value] of Object.entries(sent)) {
    parts.push('-H', name === 'Authorization' ? `"${name}: ${value}"` : quoted(`${name}: ${value}`));
  }
  if (body !== undefined) parts.push('--data-binary', quoted(body));
  return parts.join(' ');
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function copyButton(line) {
  const copy = button('Copy the curl line', async () => {
    try {
      await navigator.clipboard.writeText(line.textContent);
      copy.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(line);
      copy.textContent = 'Selected: copy it by hand';
    }
  });
  return copy;
}

async function sendAndShow(request, place) {
  place.replaceChildren(make('p', { class: 'soft' }, 'Sending…'));
  try {
    const started = performance.now();
    let response = await attempt(request.path, request);
    if (response.status === 401 && (await askForKey())) response = await attempt(request.path, request);
    const text = await response.text();
    const took = Math.round(performance.now() - started);
    clear(place);
    place.append(
      make(
        'p',
        { class: 'numbers', 'data-test': 'try-status' },
        make('strong', {}, `${response.status} ${response.statusText}`),
        make('span', { class: 'soft' }, ` in ${took} ms`),
      ),
      foreign('pre', shown(text), {
        class: 'code',
        tabindex: '0',
        'aria-label': 'The answer',
        'data-test': 'try-answer',
      }),
    );
  } catch (error) {
    showTrouble(place, error);
  }
}

function shown(text) {
  const pretty = prettyJson(text);
  return pretty.length > MOST_SHOWN
    ? `${pretty.slice(0, MOST_SHOWN)}\n… and ${pretty.length - MOST_SHOWN} characters more`
    : pretty || '(empty)';
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
