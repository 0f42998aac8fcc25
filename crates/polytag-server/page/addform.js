// The form that adds a label, used beside a text and in the list of labels. It sends the label itself and
// hands what the server made of it to `onAdded`.

import { clear, make, showTrouble } from './dom.js';

let made = 0;

/** A form for a new label of the client that `clientNow` gives. */
export function addForm(clientNow, onAdded) {
  made += 1;
  const name = make('input', {
    id: `add-name-${made}`,
    'data-test': 'add-name',
    dir: 'auto',
    autocomplete: 'off',
    required: true,
  });
  const description = make('textarea', {
    id: `add-description-${made}`,
    'data-test': 'add-description',
    dir: 'auto',
    rows: '3',
  });
  const id = make('input', {
    id: `add-id-${made}`,
    'data-test': 'add-id',
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'made from the name',
  });
  const submit = make(
    'button',
    { type: 'submit', class: 'primary push', 'data-test': 'add-submit' },
    'Add the label',
  );
  const trouble = make('div');
  const form = make(
    'form',
    { class: 'stack', novalidate: true },
    field(name, 'Name'),
    field(description, 'Description', 'optional; a sentence or two helps much'),
    make('div', { class: 'controls' }, field(id, 'Id', 'optional'), submit),
    trouble,
  );

  form.addEventListener('input', () => clear(trouble));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    clear(trouble);
    if (name.value.trim() === '') {
      showTrouble(trouble, { message: 'A label needs a name.' });
      name.focus();
      return;
    }
    submit.disabled = true;
    try {
      const label = await clientNow().addLabel(
        filled({ id: id.value, name: name.value, description: description.value }),
      );
      form.reset();
      await onAdded(label);
    } catch (error) {
      showTrouble(trouble, error);
    } finally {
      submit.disabled = false;
    }
  });
  return form;
}

/** Without the fields that were left empty. */
function filled(label) {
  const entries = Object.entries(label).map(([field, value]) => [field, value.trim()]);
  return Object.fromEntries(entries.filter(([, value]) => value !== ''));
}

function field(input, name, note = '') {
  const label = make(
    'label',
    { for: input.id },
    name,
    note && ' ',
    note && make('span', { class: 'soft' }, note),
  );
  return make('div', { class: 'field grow' }, label, input);
}
