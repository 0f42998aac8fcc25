// Questions that need an answer before work goes on: "are you sure?", and the API key.
// The key stays in sessionStorage: it is gone with the tab, and no other page reads it.

import { foreign, make } from './dom.js';

const KEY = 'polytag.key';

let pendingKey = null;

export function storedKey() {
  return sessionStorage.getItem(KEY);
}

export function forgetKey() {
  sessionStorage.removeItem(KEY);
  dispatchEvent(new Event('keychange'));
}

/** Asks for an API key and keeps it. False when the person declines. Requests that ask at once share one question. */
export function askForKey() {
  pendingKey ??= questionForKey().finally(() => {
    pendingKey = null;
  });
  return pendingKey;
}

async function questionForKey() {
  const input = make('input', {
    id: 'key-input',
    type: 'password',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
    'data-test': 'key',
  });
  const sentence = storedKey() ? 'The server did not take that key.' : 'This server asks for an API key.';
  const answered = await ask({
    title: 'API key',
    sentence: `${sentence} It is kept in this tab only, until you close it.`,
    extra: make('div', { class: 'field' }, make('label', { for: 'key-input' }, 'Key'), input),
    verb: 'Use the key',
  });
  const key = input.value.trim();
  if (!answered || key === '') return false;
  sessionStorage.setItem(KEY, key);
  dispatchEvent(new Event('keychange'));
  return true;
}

/** Shows a question; true when it is confirmed, false when it is declined or closed. */
export function ask({ title, sentence, extra = null, verb, danger = false }) {
  const cancel = make('button', { type: 'button' }, 'Cancel');
  const confirm = make(
    'button',
    { type: 'submit', class: danger ? 'danger' : 'primary', 'data-test': 'confirm' },
    verb,
  );
  const form = make(
    'form',
    { class: 'stack' },
    make('h2', { id: 'dialog-heading' }, title),
    foreign('p', sentence),
    extra,
    make('div', { class: 'pair' }, cancel, confirm),
  );
  const dialog = make('dialog', { 'aria-labelledby': 'dialog-heading' }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let confirmed = false;
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      confirmed = true;
      dialog.close();
    });
    cancel.addEventListener('click', () => dialog.close());
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(confirmed);
    });
    dialog.showModal();
  });
}
