// The page of the HTTP interface: every operation of /openapi.json by its tag, what it takes, what it answers,
// and a form to try it. Knows nothing of polytag but that document.

import { fetchModels, fetchOpenApi } from './api.js';
import { byId, clear, foreign, make, showTrouble } from './dom.js';
import { Schemas } from './schema.js';
import { tryForm } from './tryit.js';

const METHODS = ['get', 'post', 'put', 'patch', 'delete', 'head', 'options'];

async function load() {
  try {
    const [document, hints] = [await fetchOpenApi(), await parameterHints()];
    clear(byId('trouble'));
    show(document, hints);
  } catch (error) {
    showTrouble(byId('trouble'), error, load);
  }
}

/** Values for parameters that the server can tell itself: the name of a model. */
async function parameterHints() {
  const name = await fetchModels().then(
    (models) => models[0]?.name ?? '',
    () => '',
  );
  return { m: name, model: name, name };
}

function show(root, hints) {
  const schemas = new Schemas(root);
  byId('docs-heading').textContent = root.info?.title ?? 'The HTTP interface';
  const version = root.info?.version ? [make('p', {}, `Version ${root.info.version}`)] : [];
  byId('docs-about').replaceChildren(...version, ...paragraphs(root.info?.description));
  const groups = grouped(operationsOf(root, schemas), root.tags ?? []);
  byId('contents').replaceChildren(...groups.map(contentsOf));
  byId('operations').replaceChildren(...groups.map((group) => groupSection(group, schemas, hints)));
  if (location.hash) openNamed(decodeURIComponent(location.hash.slice(1)));
}

function operationsOf(root, schemas) {
  return Object.entries(root.paths ?? {}).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => {
      const operation = item[method];
      const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map((parameter) =>
        schemas.resolve(parameter),
      );
      return {
        id: operation.operationId ?? `${method}-${path}`,
        tag: operation.tags?.[0] ?? 'Other',
        method,
        path,
        parameters,
        summary: operation.summary ?? '',
        description: operation.description ?? '',
        body: operation.requestBody ? schemas.resolve(operation.requestBody) : null,
        responses: Object.entries(operation.responses ?? {}).map(([status, response]) => [
          status,
          schemas.resolve(response),
        ]),
      };
    }),
  );
}

/** The operations by tag, in the order of the document's tags, then of their first mention. */
function grouped(operations, tags) {
  const names = [...new Set([...tags.map(({ name }) => name), ...operations.map(({ tag }) => tag)])];
  return names
    .map((name) => ({
      name,
      description: tags.find((tag) => tag.name === name)?.description,
      operations: operations.filter(({ tag }) => tag === name),
    }))
    .filter((group) => group.operations.length);
}

function contentsOf({ name, operations }) {
  const links = operations.map(({ id, method, path }) =>
    make('li', {}, make('a', { href: `#${encodeURIComponent(id)}` }, methodMark(method), ' ', path)),
  );
  return make('div', {}, make('h2', {}, name), make('ul', {}, ...links));
}

function groupSection({ name, description, operations }, schemas, hints) {
  return make(
    'section',
    { 'aria-label': name },
    make('h2', {}, name),
    ...paragraphs(description),
    ...operations.map((operation) => operationCard(operation, schemas, hints)),
  );
}

/** An operation, drawn in full once it is opened. */
function operationCard(operation, schemas, hints) {
  const inside = make('div', { class: 'stack' });
  const card = make(
    'details',
    { class: 'card operation', id: operation.id, 'data-test': 'operation' },
    make(
      'summary',
      {},
      methodMark(operation.method),
      ' ',
      make('code', {}, operation.path),
      ' ',
      foreign('span', operation.summary, { class: 'soft' }),
    ),
    inside,
  );
  card.addEventListener('toggle', () => {
    if (card.open && inside.childElementCount === 0)
      inside.append(...operationParts(operation, schemas, hints));
  });
  return card;
}

function operationParts(operation, schemas, hints) {
  return [
    ...paragraphs(operation.description),
    ...parametersPart(operation.parameters, schemas),
    ...bodyPart(operation.body, schemas),
    ...responsesPart(operation.responses, schemas),
    make('h3', {}, 'Try it'),
    tryForm(operation, schemas, hints),
  ];
}

function parametersPart(parameters, schemas) {
  if (parameters.length === 0) return [];
  const list = make('dl', { class: 'fields' });
  for (const { name, in: place, required, schema, description } of parameters) {
    list.append(
      make(
        'dt',
        {},
        make('code', {}, name),
        ' ',
        make(
          'span',
          { class: 'soft' },
          `${schemas.typeText(schema)}, in the ${place}${required ? '' : ', optional'}`,
        ),
      ),
      make('dd', {}, ...paragraphs(description)),
    );
  }
  return [make('h3', {}, 'Parameters'), list];
}

function bodyPart(body, schemas) {
  if (!body) return [];
  return [make('h3', {}, 'Body'), ...paragraphs(body.description), ...mediaParts(body.content, schemas)];
}

function responsesPart(responses, schemas) {
  const items = responses.map(([status, { description, content }]) =>
    make(
      'details',
      { class: 'answer' },
      make('summary', {}, make('code', {}, status), ' ', foreign('span', description ?? '')),
      ...mediaParts(content, schemas),
    ),
  );
  return items.length ? [make('h3', {}, 'Answers'), make('div', {}, ...items)] : [];
}

function mediaParts(content, schemas) {
  return Object.entries(content ?? {}).map(([type, { schema }]) =>
    make(
      'div',
      { class: 'stack tight' },
      make('p', { class: 'soft' }, make('code', {}, type), schema ? ` ${schemas.typeText(schema)}` : ''),
      schema ? schemas.describe(schema) : null,
    ),
  );
}

function methodMark(method) {
  return make('span', { class: `method ${method}` }, method.toUpperCase());
}

function paragraphs(text) {
  return (text ?? '')
    .split(/\n\s*\n/)
    .filter((part) => part.trim() !== '')
    .map((part) => foreign('p', part.trim()));
}

function openNamed(id) {
  const card = byId(id);
  if (!card) return;
  card.open = true;
  card.scrollIntoView();
  card.querySelector('summary').focus({ preventScroll: true });
}

addEventListener('hashchange', () => openNamed(decodeURIComponent(location.hash.slice(1))));
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  byId('main').focus();
});
load();
