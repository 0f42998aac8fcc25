// The server as functions: one for each request the page makes. Errors come out as `ApiError` with words to
// show; a missing key is asked for and the request sent again. Touches the network and nothing of the page.

import { askForKey, storedKey } from './dialog.js';

/** Where the server is: this file lies in its folder `page`. */
export const ROOT = new URL('../', import.meta.url);

const NDJSON = 'application/x-ndjson';

/** What the server refused, or why it could not be asked. */
export class ApiError extends Error {
  constructor({ status = 0, code = '', message, remedy = '', retryAfter = null }) {
    super(message);
    Object.assign(this, { status, code, remedy, retryAfter });
  }
}

/** Sends a request as it is, with the key if there is one. */
export async function attempt(path, { method = 'GET', headers = {}, body, signal } = {}) {
  const key = storedKey();
  const authorization = key ? { Authorization: `Bearer ${key}` } : {};
  try {
    return await fetch(new URL(path, ROOT), {
      method,
      headers: { ...authorization, ...headers },
      body,
      signal,
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError({
      message: 'The server cannot be reached.',
      remedy: 'See that it is still running, then try again.',
    });
  }
}

/** Sends a request, asks for a key where one is needed, and throws unless all went well. */
export async function send(path, options) {
  for (;;) {
    const key = storedKey();
    const response = await attempt(path, options);
    if (response.ok) return response;
    const isWorthRepeating = response.status === 401 && (storedKey() !== key || (await askForKey()));
    if (!isWorthRepeating) throw await errorOf(response);
  }
}

async function errorOf(response) {
  const { status } = response;
  const told = await response.json().then(
    (body) => body.error ?? {},
    () => ({}),
  );
  const waiting = Number(response.headers.get('Retry-After'));
  const retryAfter = Number.isFinite(waiting) && waiting > 0 ? waiting : null;
  const wait = retryAfter ? `Try again in ${retryAfter} s.` : '';
  return new ApiError({
    status,
    code: told.code,
    message: told.message ?? `The server answered ${status} ${response.statusText}.`,
    remedy: told.remedy ?? wait,
    retryAfter,
  });
}

async function fetchJson(path, options) {
  return (await send(path, options)).json();
}

function withJson(method, content, signal) {
  return { method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(content), signal };
}

/** The values of an answer of JSON lines, each as it arrives. */
async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value = '' } = await reader.read();
    const lines = (rest + value).split('\n');
    rest = done ? '' : lines.pop();
    for (const line of lines) if (line.trim() !== '') yield JSON.parse(line);
    if (done) return;
  }
}

function query(parameters) {
  const given = Object.entries(parameters).filter(
    ([, value]) => value !== null && value !== undefined && value !== '',
  );
  return given.length ? `?${new URLSearchParams(given)}` : '';
}

export async function fetchModels() {
  return (await fetchJson('v1/models')).models;
}

export function fetchOpenApi() {
  return fetchJson('openapi.json');
}

/** What one model can be asked. */
export class ModelClient {
  constructor(facts) {
    this.facts = facts;
    this.path = `v1/models/${encodeURIComponent(facts.name)}`;
  }

  details() {
    return fetchJson(this.path);
  }

  /** The labels of one document. */
  async tag(document, { k, threshold, allowed }, signal) {
    const content = { texts: [document], k, threshold: threshold ?? undefined, allowed };
    const answer = await fetchJson(`${this.path}/tag`, withJson('POST', content, signal));
    return answer.results[0].labels;
  }

  /** The results of many documents, each as it is ready. */
  async *tagMany(documents, { k, threshold }, signal) {
    const response = await send(`${this.path}/tag${query({ k, threshold })}`, {
      method: 'POST',
      headers: { 'Content-Type': NDJSON, Accept: NDJSON },
      body: documents.map((document) => `${JSON.stringify(document)}\n`).join(''),
      signal,
    });
    yield* linesOf(response);
  }

  explain(document, label) {
    return fetchJson(`${this.path}/explain`, withJson('POST', { ...document, label }));
  }

  findLabels({ match, only, offset, limit }, signal) {
    return fetchJson(`${this.path}/labels${query({ match, only, offset, limit })}`, { signal });
  }

  async addLabel(label) {
    return (await fetchJson(`${this.path}/labels`, withJson('POST', label))).labels[0];
  }

  changeLabel(id, changes) {
    return fetchJson(`${this.path}/labels/${encodeURIComponent(id)}`, withJson('PATCH', changes));
  }

  async retireLabel(id) {
    await send(`${this.path}/labels/${encodeURIComponent(id)}`, { method: 'DELETE' });
  }

  async saveFeedback(document, accepted, rejected) {
    return (await fetchJson(`${this.path}/feedback`, withJson('POST', { ...document, accepted, rejected })))
      .stored;
  }

  tail() {
    return fetchJson(`${this.path}/tail`);
  }

  async curve() {
    return (await fetchJson(`${this.path}/curve`)).points;
  }

  /** The map of the labels, or null where they have no vectors. */
  async map() {
    try {
      return (await fetchJson(`${this.path}/map`)).points;
    } catch (error) {
      if (error.code === 'no_map') return null;
      throw error;
    }
  }
}
