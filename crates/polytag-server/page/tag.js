// The view that tags one text: the form, the request, feedback, and a label added in place.
// What was asked is kept as it was sent, so that reasons and feedback belong to that text, however it is edited since.

import { addForm } from './addform.js';
import {
  announce,
  byId,
  clear,
  counted,
  numberIn,
  quotedName,
  scoreText,
  showTrouble,
  takeDrops,
  textOf,
  visible,
} from './dom.js';
import { Results } from './results.js';

const MOST_BYTES = 8 << 20;
/** Where the results stand below the form, as in style.css. */
const STACKED = '(max-width: 59.99rem)';
const INVITATION = 'Accept or reject labels. What you save is kept for the next fit.';

export function tagView() {
  const [form, title, text, trouble] = ['tag-form', 'tag-title', 'tag-text', 'tag-trouble'].map(byId);
  const results = new Results(byId('results'), offerToSave);
  let client = null;
  let asked = null;
  let running = null;

  function offerToSave() {
    byId('save-feedback').disabled = results.judgements.size === 0;
    byId('feedback-note').textContent = INVITATION;
  }

  function documentNow() {
    const document = { text: wellFormed(text.value) };
    return title.value.trim() === '' ? document : { title: wellFormed(title.value), ...document };
  }

  function settings() {
    return { k: numberIn(byId('tag-k')) ?? 10, threshold: numberIn(byId('tag-threshold')) };
  }

  async function tag() {
    clear(trouble);
    if (text.value.trim() === '' && title.value.trim() === '') {
      showTrouble(trouble, { message: 'There is no text yet. Paste one above.' });
      text.focus();
      return;
    }
    const document = documentNow();
    const labels = await request((signal) => client.tag(document, settings(), signal));
    if (!labels) return;
    asked = document;
    results.forget();
    offerToSave();
    show(labels);
    if (matchMedia(STACKED).matches) byId('result-card').scrollIntoView({ block: 'start' });
    announce(
      labels.length
        ? `${counted(labels.length, 'label')}. The first is ${quotedName(labels[0].name)}.`
        : 'No label reached the least score.',
    );
  }

  /** Runs one request at a time and says what went wrong. Gives null where it did, or where a newer one took over. */
  async function request(work) {
    running?.abort();
    const own = new AbortController();
    running = own;
    setBusy(true);
    try {
      return await work(own.signal);
    } catch (error) {
      if (error.name !== 'AbortError') showTrouble(trouble, error);
      return null;
    } finally {
      if (running === own) setBusy(false);
    }
  }

  function setBusy(isBusy) {
    byId('result-card').setAttribute('aria-busy', String(isBusy));
  }

  function show(labels, options) {
    results.draw(client, asked, labels, options);
    byId('result-empty').hidden = labels.length > 0;
    byId('result-empty').textContent = 'No label reached the least score.';
    byId('feedback').hidden = labels.length === 0;
    byId('tag-add').hidden = !client.facts.can_add;
    noteWhatIsShown();
  }

  function noteWhatIsShown() {
    if (!asked) return;
    const now = documentNow();
    const isOld = now.text !== asked.text || now.title !== asked.title;
    const measure = client.facts.probabilities ? 'Probability' : 'Score, beside the best';
    byId('result-note').textContent = isOld ? 'The text has changed since. Tag it again.' : measure;
  }

  async function saveFeedback() {
    const note = byId('feedback-note');
    try {
      const stored = await client.saveFeedback(asked, results.judged('accepted'), results.judged('rejected'));
      note.textContent = `Saved. ${counted(stored, 'judgement')} ${stored === 1 ? 'is' : 'are'} kept for the next fit.`;
      byId('save-feedback').disabled = true;
    } catch (error) {
      showTrouble(note, error);
    }
  }

  /** Ranks the text again with the new label, which is shown even where it is not among the first. */
  async function rankWith(added) {
    const { k, threshold } = settings();
    const labels = await request((signal) => client.tag(asked, { k, threshold }, signal));
    if (!labels) return;
    const place = labels.findIndex(({ id }) => id === added.id);
    const within = labels.length;
    if (place < 0) labels.push(...(await client.tag(asked, { k: 1, allowed: [added.id] })));
    show(labels, { fresh: added.id, within });
    byId('tag-add').open = false;
    results.focusOn(added.id);
    const sentence = standing(added, place, labels.at(-1), within);
    byId('result-note').textContent = sentence;
    announce(sentence);
  }

  function standing(added, place, last, within) {
    if (place >= 0)
      return `${quotedName(added.name)} is added. It stands at place ${place + 1} of ${within}.`;
    if (last?.id !== added.id) return `${quotedName(added.name)} is added. It does not fit this text.`;
    return `${quotedName(added.name)} is added. It stands below the first ${within}, with ${scoreText(last.score, client.facts.probabilities)}.`;
  }

  async function openFile(file) {
    clear(trouble);
    try {
      text.value = await readable(file);
      text.focus();
      noteWhatIsShown();
      announce(`${file.name} is open.`);
    } catch (error) {
      showTrouble(trouble, error);
    }
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    tag();
  });
  form.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    tag();
  });
  form.addEventListener('input', noteWhatIsShown);
  takeDrops(form, openFile);
  byId('tag-file').addEventListener('change', (event) => {
    if (event.target.files[0]) openFile(event.target.files[0]);
    event.target.value = '';
  });
  byId('save-feedback').addEventListener('click', saveFeedback);
  byId('tag-add-form').append(addForm(() => client, rankWith));

  return {
    show(next) {
      if (next === client) return;
      client = next;
      asked = null;
      running?.abort();
      results.forget();
      clear(trouble);
      byId('feedback').hidden = true;
      byId('tag-add').hidden = true;
      byId('result-note').textContent = '';
      byId('result-empty').hidden = false;
      if (text.value.trim() !== '') tag();
    },
  };
}

/** A text that JSON can carry: half a character becomes a replacement mark. */
function wellFormed(text) {
  return text.isWellFormed?.() === false ? text.toWellFormed() : text;
}

async function readable(file) {
  if (file.size > MOST_BYTES) {
    throw Object.assign(new Error(`${visible(file.name)} is larger than 8 MB.`), {
      remedy: 'The view Batch is for many texts.',
    });
  }
  const text = (await textOf(file)).replace(/^\ufeff/, '');
  if (text.includes('\0')) throw new Error(`${visible(file.name)} is not a text file.`);
  return text;
}
