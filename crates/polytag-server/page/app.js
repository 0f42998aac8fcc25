// The frame of the page: which model, which view, and the way between them by the address (#/tag?model=NAME).
// Each view is a module that takes its section and is told when to show which model.

import { ModelClient, fetchModels } from './api.js';
import { batchView } from './batch.js';
import { forgetKey, storedKey } from './dialog.js';
import { byId, clear, foreign, make, showTrouble, visible } from './dom.js';
import { labelsView } from './labels.js';
import { modelView } from './model.js';
import { tagView } from './tag.js';

const DEFAULT = 'tag';
const TITLES = { tag: 'Tag', labels: 'Labels', model: 'Model', batch: 'Batch' };

const views = { tag: tagView(), labels: labelsView(), model: modelView(), batch: batchView() };
let clients = [];

/** What the address asks for: a view and, where there are several, a model. */
function wanted() {
  const [path, parameters = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const name = new URLSearchParams(parameters).get('model');
  return {
    view: path in TITLES ? path : DEFAULT,
    client: clients.find((client) => client.facts.name === name) ?? clients[0],
  };
}

function address(view, client) {
  const several = clients.length > 1 && client !== clients[0];
  return several ? `#/${view}?${new URLSearchParams({ model: client.facts.name })}` : `#/${view}`;
}

function show() {
  if (clients.length === 0) return;
  const { view, client } = wanted();
  for (const section of document.querySelectorAll('section.view'))
    section.hidden = section.dataset.view !== view;
  for (const link of document.querySelectorAll('nav a')) {
    link.href = address(link.dataset.view, client);
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  byId('model-choice').value = client.facts.name;
  document.title = `${TITLES[view]} · ${visible(client.facts.name)} · polytag`;
  views[view].show(client);
}

function followAddress() {
  show();
  document.querySelector('section.view:not([hidden]) h1')?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function fillPicker() {
  const options = clients.map(({ facts }) => make('option', { value: facts.name }, visible(facts.name)));
  byId('model-choice').replaceChildren(...options);
  byId('picker').hidden = clients.length < 2;
}

async function loadModels() {
  const trouble = byId('trouble');
  try {
    clients = (await fetchModels()).map((facts) => new ModelClient(facts));
    clear(trouble);
    if (clients.length === 0)
      trouble.append(foreign('p', 'This server has no model. Start it with one: polytag serve MODEL'));
  } catch (error) {
    showTrouble(trouble, error, loadModels);
  }
  fillPicker();
  show();
}

function offerToForgetKey() {
  byId('forget-key').hidden = !storedKey();
}

addEventListener('hashchange', followAddress);
addEventListener('keychange', offerToForgetKey);
byId('forget-key').addEventListener('click', forgetKey);
byId('model-choice').addEventListener('change', (event) => {
  const client = clients.find(({ facts }) => facts.name === event.target.value);
  location.hash = address(wanted().view, client);
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  byId('main').focus();
});
offerToForgetKey();
loadModels();
