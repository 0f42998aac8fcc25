// A file on its way through the server: documents go out in pieces small enough for its limits, results come back
// as they are ready. A busy server is waited for, a piece it finds too large is halved. Touches nothing of the page.

import { ApiError } from './api.js';

const PIECE_DOCUMENTS = 64;
const PIECE_CHARACTERS = 256 * 1024;
const WAIT_SECONDS = 2;

/** Whether the server will take the same again later. */
function isBusy({ status, code, retryAfter }) {
  return status === 429 || code === 'busy' || (status === 503 && retryAfter !== null);
}

/** Whether the server may take it in smaller pieces: it was too large, or took too long. */
function isTooMuch({ status, code }) {
  return status === 413 || status === 504 || code === 'too_large' || code === 'late';
}

/** The tagging of a list of documents, which can be stopped and gone on with. */
export class Job {
  constructor(client, documents, settings) {
    Object.assign(this, { client, documents, settings });
    this.results = documents.map(({ error }) => (error ? { error } : undefined));
    this.done = this.results.filter(Boolean).length;
  }

  get isFinished() {
    return this.done === this.documents.length;
  }

  /** Tags what has no result yet. `onResult(index)` and `onWait(seconds)` tell how it goes. */
  async run({ signal, onResult, onWait }) {
    for (const piece of this.pieces()) await this.tagPatiently(piece, { signal, onResult, onWait });
  }

  /** The indexes of the documents still to tag, in pieces. */
  pieces() {
    const pieces = [];
    let characters = Infinity;
    this.documents.forEach(({ text, title = '' }, index) => {
      if (this.results[index]) return;
      const own = text.length + title.length;
      if (characters + own > PIECE_CHARACTERS || pieces.at(-1).length === PIECE_DOCUMENTS) {
        pieces.push([]);
        characters = 0;
      }
      pieces.at(-1).push(index);
      characters += own;
    });
    return pieces;
  }

  async tagPatiently(piece, watch) {
    for (;;) {
      const left = piece.filter((index) => !this.results[index]);
      if (left.length === 0) return;
      try {
        await this.tagOnce(left, watch);
        return;
      } catch (error) {
        if (isBusy(error)) await this.wait(error.retryAfter ?? WAIT_SECONDS, watch);
        else if (isTooMuch(error)) return this.tagHalves(left, error, watch);
        else throw error;
      }
    }
  }

  async wait(seconds, { signal, onWait }) {
    onWait(seconds);
    await new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, 1000 * seconds);
      signal.addEventListener(
        'abort',
        () => {
          clearTimeout(timer);
          reject(signal.reason);
        },
        { once: true },
      );
    });
  }

  async tagHalves(piece, error, watch) {
    if (piece.length === 1) {
      this.settle(piece[0], { error: error.message }, watch);
      return;
    }
    const middle = piece.length >> 1;
    await this.tagPatiently(piece.slice(0, middle), watch);
    await this.tagPatiently(piece.slice(middle), watch);
  }

  /** Sends a piece. Each document carries its index as its id, so that the order of the answers does not matter. */
  async tagOnce(piece, watch) {
    const sent = piece.map((index) => ({ id: String(index), ...this.documents[index] }));
    for await (const answer of this.client.tagMany(sent, this.settings, watch.signal)) {
      if (answer.error && answer.line === undefined) throw new ApiError(answer.error);
      const index = answer.line === undefined ? Number(answer.id) : piece[answer.line - 1];
      this.settle(index, answer.error ? { error: answer.error.message } : { labels: answer.labels }, watch);
    }
    const missing = piece.filter((index) => !this.results[index]);
    if (missing.length) throw new Error('The answer of the server broke off.');
  }

  settle(index, result, { onResult }) {
    if (this.results[index] || !(index in this.documents)) return;
    this.results[index] = result;
    this.done += 1;
    onResult(index);
  }
}
