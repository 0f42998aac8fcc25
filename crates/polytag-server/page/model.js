// The view of a model: facts, the label tail, the course of its training, the map of its labels.
// Each part loads by itself, so that one that fails leaves the others standing. Facts and tail, which change with
// every label added, load whenever the view is shown.

import { drawBars, drawLines } from './charts.js';
import { byId, count, counted, foreign, make, showTrouble } from './dom.js';
import { drawMap } from './map.js';

const MEASURES = ['nDCG@5', 'ZSR@100'];
const SHOWN = ['P@1', 'P@5', 'R@10', 'R@100', 'nDCG@5', 'PSP@5', 'ZSR@10', 'ZSR@100'];

export function modelView() {
  let client = null;
  return {
    show(next) {
      const isNew = next !== client;
      client = next;
      const isCurrent = () => client === next;
      fill(byId('facts'), isCurrent, async () => facts(await next.details()));
      fill(byId('tail'), isCurrent, async () => tail(await next.tail()));
      if (!isNew) return;
      fill(byId('curve'), isCurrent, async () => curve(await next.curve()));
      fill(byId('map'), isCurrent, async () => map(await next.map()));
    },
  };
}

/** Puts what `build` makes into a place, or the trouble it had; what comes too late is left out. */
async function fill(place, isCurrent, build) {
  place.replaceChildren(make('p', { class: 'soft' }, 'Loading…'));
  try {
    const parts = await build();
    if (isCurrent()) place.replaceChildren(...parts);
  } catch (error) {
    if (isCurrent()) showTrouble(place, error, () => fill(place, isCurrent, build));
  }
}

function facts(model) {
  const rows = [
    ['Name', model.name],
    ['Method', model.method],
    ['Labels', count(model.labels)],
    ['Unseen labels', count(model.unseen)],
    ['Training documents', count(model.train_documents)],
    ['Scores are', model.probabilities ? 'probabilities' : 'scores, for ranking'],
    ['Changes to labels', count(model.changes)],
    ['Seed', model.seed],
    ['Fitted by', model.program],
  ].filter(([, value]) => value !== undefined && value !== null && value !== '');
  const list = make('dl', { class: 'facts' });
  for (const [name, value] of rows)
    list.append(make('dt', {}, name), foreign('dd', value, { class: 'numbers' }));
  const config = make(
    'details',
    {},
    make('summary', {}, 'Configuration'),
    foreign('pre', JSON.stringify(model.config ?? {}, null, 2), { class: 'code', tabindex: '0' }),
  );
  return [list, ...quality(model.evaluation), config];
}

/** How good the model was found to be, in percent, with the intervals. */
function quality(report) {
  if (!report?.metrics) {
    const words = 'How good it is has not been kept. polytag evaluate MODEL TASK --keep does that.';
    return [make('p', { class: 'soft' }, words)];
  }
  const known = SHOWN.filter((name) => Number.isFinite(report.metrics[name]));
  const interval = (name) => report.intervals?.[name]?.map((end) => end.toFixed(1)).join(' to ') ?? '–';
  const rows = known.map((name) => [name, report.metrics[name].toFixed(1), interval(name)]);
  return [
    make('h3', {}, `On ${counted(report.documents, 'document')} of the ${report.split} split, in percent`),
    table(['Measure', 'Value', '95 % interval'], rows),
  ];
}

function tail({ buckets, most }) {
  const bars = buckets.map(({ from, to, labels }) => ({
    name: from === to ? count(from) : `${count(from)}–${count(to)}`,
    value: labels,
    isHollow: to === 0,
  }));
  const total = buckets.reduce((sum, { labels }) => sum + labels, 0);
  const unseen = buckets.find(({ to }) => to === 0)?.labels ?? 0;
  const sentence = `${counted(total, 'label')}, ${count(unseen)} of them without a training document.`;
  const chart = drawBars(bars, `Bar chart. ${sentence}`);
  return [
    chart,
    make('p', { class: 'soft' }, unseen ? `${sentence} Those are drawn hollow.` : sentence),
    numbers(
      ['Training documents', 'Labels'],
      bars.map(({ name, value }) => [name, count(value)]),
    ),
    make(
      'details',
      {},
      make('summary', {}, 'The ten most used labels'),
      table(
        ['Label', 'Training documents'],
        most.map(({ name, train_documents }) => [name, count(train_documents)]),
      ),
    ),
  ];
}

function curve(points) {
  const names = seriesNames(points);
  if (names.length === 0)
    return [make('p', { class: 'soft' }, 'This model was not trained in steps, or kept no record of them.')];
  const series = names.map((name) => ({
    name,
    points: points
      .filter(({ measures }) => Number.isFinite(measures[name]))
      .map(({ step, measures }) => [step, measures[name]]),
  }));
  const ends = series.map(
    ({ name, points: own }) => `${name} goes from ${own[0][1].toFixed(1)} to ${own.at(-1)[1].toFixed(1)}`,
  );
  const rows = points.map(({ step, measures }) => [
    count(step),
    ...names.map((name) => measures[name]?.toFixed(1) ?? '–'),
  ]);
  const parts = [
    drawLines(series, `Line chart over steps. ${ends.join('; ')}.`),
    make('p', { class: 'soft' }, `${ends.join('; ')}.`),
  ];
  return [...parts, ...lossCurve(points), numbers(['Step', ...names], rows)];
}

/** The measures to draw: those the papers draw, else the first that are there. */
function seriesNames(points) {
  const known = [...new Set(points.flatMap(({ measures }) => Object.keys(measures)))];
  const wanted = MEASURES.filter((name) => known.includes(name));
  return wanted.length ? wanted : known.slice(0, 2);
}

function lossCurve(points) {
  const own = points.filter(({ loss }) => Number.isFinite(loss)).map(({ step, loss }) => [step, loss]);
  if (own.length < 2) return [];
  const sentence = `The loss goes from ${own[0][1].toPrecision(3)} to ${own.at(-1)[1].toPrecision(3)}.`;
  return [
    make('h3', {}, 'Loss'),
    drawLines([{ name: 'loss', points: own }], `Line chart over steps. ${sentence}`, 140),
  ];
}

function map(points) {
  if (!points?.length)
    return [make('p', { class: 'soft' }, 'The labels of this model have no vectors, so there is no map.')];
  return drawMap(points);
}

function numbers(head, rows) {
  return make('details', {}, make('summary', {}, 'In numbers'), table(head, rows));
}

function table(head, rows) {
  const cells = (tag, row) =>
    row.map((cell, place) =>
      foreign(tag, cell, { class: place ? 'numbers right' : null, scope: tag === 'th' ? 'col' : null }),
    );
  return make(
    'div',
    { class: 'scroll short', tabindex: '0', role: 'region', 'aria-label': 'Table' },
    make(
      'table',
      {},
      make('thead', {}, make('tr', {}, ...cells('th', head))),
      make('tbody', {}, ...rows.map((row) => make('tr', {}, ...cells('td', row)))),
    ),
  );
}
