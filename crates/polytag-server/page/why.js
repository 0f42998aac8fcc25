// Why a label fits: the text with the words that speak for it shaded, the reasons with their weights, and the
// nearest training documents. Builds elements from an explanation; asks nothing of the server.

import { button, foreign, make, scoreText, setShare, threeDigits, visible } from './dom.js';
import { pieces, piecesOfReasons } from './marks.js';

/** Shades weaker than this are not worth an element. */
const FAINT = 0.03;
const REASONS_AT_FIRST = 8;
const FIELDS = { title: 'in the title', text: 'in the text', predicted: 'a predicted label' };

/** The elements that explain a label of `asked`. */
export function explanation(why, asked, isProbability) {
  const reasons = why.reasons ?? [];
  const parts = [summary(why, isProbability), ...passages(why.marks ?? [], reasons, asked)];
  if (reasons.length) parts.push(reasonList(reasons));
  if (parts.length === 1 && !why.matched)
    parts.push(make('p', { class: 'soft' }, 'No single word speaks for this label.'));
  if (why.documents?.length) parts.push(nearest(why.documents));
  return parts;
}

function summary(why, isProbability) {
  const line = make(
    'p',
    {},
    `${isProbability ? 'Probability' : 'Score'} ${scoreText(why.score, isProbability)}.`,
  );
  if (why.matched) line.append(' It fits best by: ', foreign('q', why.matched), '.');
  const { id, description } = why.label;
  const named = make('p', {}, foreign('code', id, { class: 'soft' }));
  return make(
    'div',
    {},
    named,
    description ? foreign('p', description, { class: 'soft described' }) : null,
    line,
  );
}

/** The text with its words shaded: by marks where the model tells what each word adds, else by the reasons. */
function passages(marks, reasons, asked) {
  const fields = ['title', 'text'].filter((field) => asked[field]);
  const known = (marks.length ? marks : reasons).filter(({ field }) => fields.includes(field));
  if (known.length === 0) return [];
  const cut = marks.length ? pieces : piecesOfReasons;
  const shown = fields.map((field) => {
    const own = known.filter((mark) => mark.field === field);
    return make('p', { class: `passage ${field}`, dir: 'auto' }, ...cut(asked[field], own).map(shaded));
  });
  return [make('div', { class: 'stack tight' }, legend(known), make('div', { class: 'passages' }, ...shown))];
}

function legend(marks) {
  const attends = marks.some((mark) => mark.attention !== undefined);
  const against = marks.some((mark) => (mark.attention ?? mark.weight) < 0);
  const said = attends
    ? 'The darker a word, the more the label looks at it.'
    : 'The darker a word, the more it speaks for the label.';
  return make(
    'p',
    { class: 'hint' },
    against ? `${said} What is underlined with dots speaks against it.` : said,
  );
}

function shaded({ text, strength, mark }) {
  if (Math.abs(strength) < FAINT) return visible(text);
  const element = make(
    'mark',
    { class: strength < 0 ? 'against' : null, title: weightText(mark) },
    visible(text),
  );
  setShare(element, Math.abs(strength));
  return element;
}

function weightText({ weight, attention }) {
  const adds = `adds ${threeDigits(weight)}`;
  return attention === undefined ? adds : `${adds}, attention ${threeDigits(attention)}`;
}

function reasonList(reasons) {
  const most = Math.max(...reasons.map(({ weight }) => Math.abs(weight)));
  const rows = reasons.map((reason) => reasonRow(reason, most));
  const list = make('ul', { class: 'reasons' }, ...rows.slice(0, REASONS_AT_FIRST));
  const box = make('div', { class: 'stack tight' }, make('h3', {}, 'Reasons'), list);
  if (rows.length > REASONS_AT_FIRST) box.append(showAll(list, rows));
  return box;
}

function showAll(list, rows) {
  const more = button(
    `Show all ${rows.length} reasons`,
    () => {
      list.replaceChildren(...rows);
      rows[REASONS_AT_FIRST].tabIndex = -1;
      rows[REASONS_AT_FIRST].focus();
      more.remove();
    },
    { class: 'plain' },
  );
  return more;
}

function reasonRow({ words, field, weight }, most) {
  const bar = make('span', { class: weight < 0 ? 'fill against' : 'fill', 'aria-hidden': 'true' });
  setShare(bar, most > 0 ? Math.abs(weight) / most : 0);
  const named = make(
    'span',
    {},
    foreign('q', words),
    ' ',
    make('span', { class: 'soft' }, FIELDS[field] ?? visible(field)),
  );
  return make(
    'li',
    {},
    named,
    make('span', { class: 'track' }, bar),
    make('span', { class: 'numbers' }, threeDigits(weight)),
  );
}

function nearest(documents) {
  const items = documents.map(({ id, title, text, similarity }) =>
    make(
      'li',
      {},
      make(
        'p',
        { class: 'heading-line' },
        foreign('strong', title || id),
        make('span', { class: 'soft numbers' }, `similarity ${similarity.toFixed(2)}`),
      ),
      foreign('p', text, { class: 'soft excerpt' }),
    ),
  );
  return make(
    'div',
    { class: 'stack tight' },
    make('h3', {}, 'Nearest training documents with this label'),
    make('ul', { class: 'nearest' }, ...items),
  );
}
