// The list of labels of a text: a row each with its bar, its path, why it is there, accept and reject.
// Draws into the list it is given and remembers the judgements; asks the client only for explanations.

import { button, clear, foreign, make, scoreText, seenMark, setShare, showTrouble } from './dom.js';
import { explanation } from './why.js';

const PATHS_SHOWN = 2;

/** The rows of a list, with what was accepted and rejected among them. */
export class Results {
  constructor(list, onJudged) {
    this.list = list;
    this.onJudged = onJudged;
    this.judgements = new Map();
  }

  forget() {
    this.judgements.clear();
    clear(this.list);
  }

  /** Shows labels of `asked`. Rows after `within` stand below the ranking: they were asked for by name. */
  draw(client, asked, labels, { fresh = null, within = labels.length } = {}) {
    const reach = reachOf(labels, client.facts.probabilities);
    const named = (name) => labels.filter((label) => label.name === name).length;
    const rows = labels.map((label, place) =>
      this.row(client, asked, label, {
        share: reach(label.score),
        fresh: label.id === fresh,
        rank: place < within ? place + 1 : null,
        isNamesake: named(label.name) > 1,
      }),
    );
    this.list.replaceChildren(...rows);
  }

  focusOn(id) {
    const row = [...this.list.children].find((item) => item.dataset.label === id);
    row?.querySelector('[data-test=why]').focus({ preventScroll: true });
    row?.scrollIntoView({ block: 'nearest' });
  }

  judged(verdict) {
    return [...this.judgements].filter(([, given]) => given === verdict).map(([id]) => id);
  }

  row(client, asked, label, { share, fresh, rank, isNamesake }) {
    const { probabilities } = client.facts;
    const panel = make('div', { class: 'why stack', 'data-test': 'why-panel', hidden: true });
    const bar = make('span', { class: 'fill', 'aria-hidden': 'true' });
    setShare(bar, share);
    return make(
      'li',
      { class: fresh ? 'result fresh' : 'result', 'data-test': 'result', 'data-label': label.id },
      make('span', { class: 'rank numbers', 'aria-hidden': 'true' }, rank ? String(rank) : '·'),
      make(
        'div',
        { class: 'label-name' },
        this.whyButton(client, asked, label, panel),
        ' ',
        seenMark(label.seen),
        fresh ? make('span', { class: 'badge new' }, 'new') : null,
        isNamesake ? make('p', { class: 'path' }, foreign('code', label.id)) : null,
        ...pathLines(label.path),
      ),
      make(
        'div',
        { class: 'measure' },
        make('span', { class: 'track' }, bar),
        make(
          'span',
          { class: 'numbers' },
          make('span', { class: 'quiet' }, probabilities ? 'probability ' : 'score '),
          scoreText(label.score, probabilities),
        ),
      ),
      this.verdictButtons(label),
      panel,
    );
  }

  whyButton(client, asked, label, panel) {
    const opener = foreign('button', label.name, {
      type: 'button',
      class: 'why-button',
      'data-test': 'why',
      'aria-expanded': 'false',
    });
    opener.addEventListener('click', () => {
      const open = opener.getAttribute('aria-expanded') !== 'true';
      opener.setAttribute('aria-expanded', String(open));
      panel.hidden = !open;
      if (open && panel.childElementCount === 0) explainIn(panel, client, asked, label);
    });
    return opener;
  }

  verdictButtons(label) {
    const verdicts = [
      ['accepted', 'accept', 'Accept'],
      ['rejected', 'reject', 'Reject'],
    ];
    const buttons = verdicts.map(([verdict, test, text]) =>
      button(
        text,
        () => {
          if (this.judgements.get(label.id) === verdict) this.judgements.delete(label.id);
          else this.judgements.set(label.id, verdict);
          refresh();
          this.onJudged();
        },
        { class: `verdict ${test}`, 'data-test': test, 'aria-label': `${text} ${label.name}` },
      ),
    );
    const refresh = () =>
      buttons.forEach((element, place) => {
        element.setAttribute('aria-pressed', String(this.judgements.get(label.id) === verdicts[place][0]));
      });
    refresh();
    return make('div', { class: 'verdicts' }, ...buttons);
  }
}

async function explainIn(panel, client, asked, label) {
  panel.replaceChildren(make('p', { class: 'soft', role: 'status' }, 'Looking for the reasons…'));
  try {
    const why = await client.explain(asked, label.id);
    panel.replaceChildren(...explanation(why, asked, client.facts.probabilities));
  } catch (error) {
    showTrouble(panel, error, () => explainIn(panel, client, asked, label));
  }
}

/** How long the bar of a score is, from 0 to 1: the probability itself, else as a share of the best score. */
function reachOf(labels, isProbability) {
  if (isProbability) return (score) => score;
  const best = Math.max(...labels.map(({ score }) => score));
  return (score) => (best > 0 ? score / best : best / score);
}

function pathLines(paths = []) {
  const lines = paths
    .filter((path) => path.length)
    .slice(0, PATHS_SHOWN)
    .map((path) => foreign('p', path.join(' › '), { class: 'path' }));
  const left = paths.length - PATHS_SHOWN;
  if (left > 0) lines.push(make('p', { class: 'path' }, `and ${left} more ${left === 1 ? 'path' : 'paths'}`));
  return lines;
}
