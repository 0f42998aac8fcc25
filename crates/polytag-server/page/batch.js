// The view that tags a file: choose, start, watch, cancel or go on, download.
// The file stays in the browser but for the texts and titles, which go to the server piece by piece.

import {
  announce,
  byId,
  clear,
  count,
  counted,
  foreign,
  make,
  numberIn,
  showTrouble,
  takeDrops,
  textOf,
  visible,
} from './dom.js';
import { readDocuments } from './files.js';
import { Job } from './job.js';

const MOST_BYTES = 200 << 20;
const PREVIEW_ROWS = 10;
const EXCERPT = 120;

export function batchView() {
  const [about, trouble, start, cancel, bar, note, rows] = [
    'batch-about',
    'batch-trouble',
    'batch-start',
    'batch-cancel',
    'batch-progress',
    'batch-note',
    'batch-rows',
  ].map(byId);
  let client = null;
  let source = null;
  let job = null;
  let stopper = null;

  async function open(file) {
    if (stopper) return;
    source = null;
    forgetJob();
    clear(trouble);
    about.textContent = `Reading ${visible(file.name)}…`;
    try {
      source = { name: file.name, ...readDocuments(file.name, await content(file)) };
      about.replaceChildren(
        foreign(
          'p',
          `${file.name}: ${counted(source.documents.length, 'document')}, ${source.format}, with ${source.columns.join(', ')}.`,
        ),
      );
    } catch (error) {
      clear(about);
      showTrouble(trouble, error);
    }
    start.disabled = !source;
  }

  /** Drops the results so far: another file, model or setting needs others. */
  function forgetJob() {
    job = null;
    clear(rows);
    for (const id of ['batch-course', 'batch-result', 'batch-preview']) byId(id).hidden = true;
    start.textContent = 'Start';
    start.hidden = false;
    start.disabled = !source;
  }

  async function run() {
    clear(trouble);
    job ??= new Job(client, source.documents, {
      k: numberIn(byId('batch-k')) ?? 5,
      threshold: numberIn(byId('batch-threshold')),
    });
    const own = job;
    stopper = new AbortController();
    setRunning(true);
    const clock = { started: performance.now(), before: job.done };
    showCourse(clock);
    try {
      await own.run({
        signal: stopper.signal,
        onResult: (index) => {
          showCourse(clock);
          showRow(index);
        },
        onWait: (seconds) => {
          note.textContent = `The server is busy. Going on in ${seconds} s. ${progressText()}`;
        },
      });
      announce(`Done. ${counted(own.done, 'document')} tagged.`);
    } catch (error) {
      if (error.name !== 'AbortError') showTrouble(trouble, error);
      else announce('Stopped.');
    }
    stopper = null;
    setRunning(false);
    if (job === own) offerDownload();
    else forgetJob();
  }

  function setRunning(isRunning) {
    cancel.hidden = !isRunning;
    start.hidden = isRunning;
    for (const id of ['batch-file', 'batch-k', 'batch-threshold']) byId(id).disabled = isRunning;
    byId('batch-course').hidden = false;
    if (isRunning) {
      byId('batch-result').hidden = true;
      addEventListener('beforeunload', keepPage);
      cancel.focus();
    } else {
      removeEventListener('beforeunload', keepPage);
    }
  }

  function progressText() {
    return `${count(job.done)} of ${counted(job.documents.length, 'document')}`;
  }

  function showCourse({ started, before }) {
    const { length } = job.documents;
    bar.max = length;
    bar.value = job.done;
    const seconds = (performance.now() - started) / 1000;
    const rate = (job.done - before) / seconds;
    const left =
      rate > 0 && seconds > 1 && !job.isFinished
        ? `, about ${duration((length - job.done) / rate)} left`
        : '';
    note.textContent = `${progressText()}${left}`;
    const quarter = Math.floor((4 * job.done) / length);
    if (quarter !== job.quarter && quarter > 0 && quarter < 4) announce(progressText());
    job.quarter = quarter;
  }

  function showRow(index) {
    if (rows.childElementCount >= PREVIEW_ROWS) return;
    const { title, text } = job.documents[index];
    const result = job.results[index];
    const labels = result.error
      ? foreign('span', result.error, { class: 'wrong' })
      : make('ul', { class: 'inline' }, ...result.labels.map(({ name }) => foreign('li', name)));
    byId('batch-preview').hidden = false;
    rows.append(make('tr', {}, foreign('td', excerpt(title || text || '')), make('td', {}, labels)));
  }

  function offerDownload() {
    const failed = job.results.filter((result) => result?.error).length;
    const link = byId('batch-download');
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(
      new Blob([source.write(job.results)], { type: 'application/octet-stream' }),
    );
    link.download = taggedName(source.name);
    link.textContent = job.isFinished ? 'Download the tagged file' : 'Download what is tagged so far';
    byId('batch-result').hidden = job.done === 0;
    const errors = failed ? ` ${counted(failed, 'document')} could not be tagged; the file says why.` : '';
    note.textContent = `${job.isFinished ? 'Done: ' : 'Stopped: '}${progressText()}.${errors}`;
    start.textContent = 'Go on';
    start.hidden = job.isFinished;
    (job.isFinished ? link : start).focus();
  }

  byId('batch-file').addEventListener('change', (event) => {
    if (event.target.files[0]) open(event.target.files[0]);
  });
  takeDrops(byId('batch-drop'), open);
  byId('batch-form').addEventListener('submit', (event) => {
    event.preventDefault();
    if (source && !stopper) run();
  });
  byId('batch-form').addEventListener('input', forgetJob);
  cancel.addEventListener('click', () => stopper?.abort());

  return {
    show(next) {
      if (next === client) return;
      client = next;
      job = null;
      if (stopper) stopper.abort();
      else forgetJob();
    },
  };
}

function keepPage(event) {
  event.preventDefault();
}

async function content(file) {
  if (file.size > MOST_BYTES) {
    throw Object.assign(new Error(`${visible(file.name)} is larger than 200 MB.`), {
      remedy: 'For large files there is the command line: polytag predict MODEL --in FILE',
    });
  }
  return textOf(file);
}

function taggedName(name) {
  const dot = name.lastIndexOf('.');
  return dot > 0 ? `${name.slice(0, dot)}.tagged${name.slice(dot)}` : `${name}.tagged`;
}

function excerpt(text) {
  return text.length > EXCERPT ? `${text.slice(0, EXCERPT)}…` : text;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
