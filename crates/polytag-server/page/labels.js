// The view of all labels: search as you type, add, rename, describe, retire.
// Every change goes to the server first and shows here once it is durable there.

import { addForm } from './addform.js';
import {
  announce,
  button,
  byId,
  clear,
  count,
  counted,
  debounced,
  foreign,
  make,
  quotedName,
  seenMark,
  showTrouble,
} from './dom.js';
import { ask } from './dialog.js';

const PAGE = 30;
const TYPING_MS = 150;

export function labelsView() {
  const [search, list, note, trouble, more] = [
    'label-search',
    'label-list',
    'labels-note',
    'labels-trouble',
    'labels-more',
  ].map(byId);
  const section = document.querySelector('section.view[data-view=labels]');
  let client = null;
  let running = null;

  function only() {
    return section.querySelector('input[name=only]:checked').value;
  }

  /** Asks for labels from `offset` on; a newer question ends an older one. */
  async function load(offset = 0) {
    running?.abort();
    running = new AbortController();
    try {
      const found = await client.findLabels(
        { match: search.value.trim(), only: only(), offset, limit: PAGE },
        running.signal,
      );
      clear(trouble);
      const rows = found.labels.map((label) => labelRow(label));
      if (offset === 0) list.replaceChildren(...rows);
      else list.append(...rows);
      sayHowMany(found.total);
      if (offset > 0) rows[0]?.querySelector('button').focus();
    } catch (error) {
      if (error.name !== 'AbortError') showTrouble(trouble, error, () => load(offset));
    }
  }

  function sayHowMany(total) {
    const shown = list.childElementCount;
    more.hidden = shown >= total;
    if (total === 0) note.textContent = 'No label is like that.';
    else
      note.textContent =
        shown < total ? `${count(shown)} of ${counted(total, 'label')}` : counted(total, 'label');
  }

  function labelRow(label) {
    const row = make('li', { class: 'label-row', 'data-test': 'label-row', 'data-label': label.id });
    const trouble = make('div');
    const edit = button('Edit', () => row.replaceChildren(editForm(label, row)), {
      'data-test': 'label-edit',
      'aria-label': `Rename or describe ${label.name}`,
    });
    const retire = button('Retire', () => retireLabel(label, row, trouble), {
      class: 'quiet-danger',
      'data-test': 'label-retire',
      'aria-label': `Retire ${label.name}`,
    });
    row.append(
      make(
        'div',
        { class: 'label-name' },
        make('p', {}, foreign('strong', label.name), ' ', seenMark(label.seen)),
        make(
          'p',
          { class: 'soft' },
          foreign('code', label.id),
          ' · ',
          make('span', { class: 'numbers' }, counted(label.train_documents, 'training document')),
        ),
        label.description ? foreign('p', label.description, { class: 'described' }) : null,
        label.aliases?.length ? foreign('p', `Also: ${label.aliases.join(', ')}`, { class: 'soft' }) : null,
      ),
      make('div', { class: 'pair' }, edit, retire),
      trouble,
    );
    return row;
  }

  function editForm(label, row) {
    const name = make('input', { id: 'edit-name', dir: 'auto', required: true, 'data-test': 'edit-name' });
    const description = make('textarea', {
      id: 'edit-description',
      dir: 'auto',
      rows: '3',
      'data-test': 'edit-description',
    });
    const trouble = make('div');
    name.value = label.name;
    description.value = label.description ?? '';
    const form = make(
      'form',
      { class: 'stack grow', novalidate: true, 'aria-label': `Rename or describe ${label.name}` },
      make('div', { class: 'field' }, make('label', { for: 'edit-name' }, 'Name'), name),
      make('div', { class: 'field' }, make('label', { for: 'edit-description' }, 'Description'), description),
      make(
        'div',
        { class: 'pair' },
        button('Cancel', () => putBack(row, label)),
        make('button', { type: 'submit', class: 'primary', 'data-test': 'edit-save' }, 'Save'),
      ),
      trouble,
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      save(label, { name: name.value.trim(), description: description.value.trim() }, row, trouble);
    });
    form.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') putBack(row, label);
    });
    requestAnimationFrame(() => name.focus());
    return form;
  }

  function putBack(row, label) {
    const fresh = labelRow(label);
    row.replaceWith(fresh);
    fresh.querySelector('[data-test=label-edit]').focus();
  }

  async function save(label, wished, row, trouble) {
    const changes = Object.fromEntries(
      Object.entries(wished).filter(([field, value]) => value !== (label[field] ?? '')),
    );
    if (Object.keys(changes).length === 0) {
      putBack(row, label);
      return;
    }
    try {
      putBack(row, await client.changeLabel(label.id, changes));
      announce(`${quotedName(wished.name)} is saved.`);
    } catch (error) {
      showTrouble(trouble, error);
    }
  }

  async function retireLabel(label, row, trouble) {
    const confirmed = await ask({
      title: 'Retire this label?',
      sentence: `${quotedName(label.name)} will no longer be among the answers.`,
      verb: 'Retire',
      danger: true,
    });
    if (!confirmed) return;
    try {
      await client.retireLabel(label.id);
      announce(`${quotedName(label.name)} is retired.`);
      const neighbour = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      (neighbour?.querySelector('button') ?? search).focus();
      await recount();
    } catch (error) {
      showTrouble(trouble, error);
    }
  }

  async function recount() {
    const { total } = await client.findLabels({
      match: search.value.trim(),
      only: only(),
      offset: 0,
      limit: 1,
    });
    sayHowMany(total);
  }

  /** Shows the new label at the top, whatever is searched for. */
  function showAdded(label) {
    byId('labels-add').open = false;
    list.prepend(labelRow(label));
    list.firstElementChild.classList.add('fresh');
    list.querySelector('[data-test=label-edit]').focus();
    announce(`${quotedName(label.name)} is added.`);
  }

  search.addEventListener(
    'input',
    debounced(() => load(), TYPING_MS),
  );
  for (const choice of section.querySelectorAll('input[name=only]'))
    choice.addEventListener('change', () => load());
  more.addEventListener('click', () => load(list.querySelectorAll('li:not(.fresh)').length));
  byId('labels-add-form').append(addForm(() => client, showAdded));

  return {
    show(next) {
      if (next !== client) clear(list);
      client = next;
      byId('labels-add').hidden = !client.facts.can_add;
      load();
    },
  };
}
