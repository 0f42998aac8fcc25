// Bars and lines as SVG, drawn anew for the width there is, so that their words keep their size.
// Series differ in dash and carry their name, not only a colour. Each gives back one element.

import { count, make, makeSvg } from './dom.js';

const ROW = 26;
const NAME = 110;
const FIGURE = 64;
const MARGIN = { top: 12, right: 76, bottom: 34, left: 44 };
const TICKS = 5;

/** A figure that calls `draw(svg, width)` whenever its width changes. */
function figure(description, height, draw) {
  const svg = makeSvg('svg', { role: 'img', 'aria-label': description, height });
  const box = make('div', { class: 'chart' }, svg);
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width === 0 || width === drawn) return;
    drawn = width;
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.replaceChildren();
    draw(svg, width);
  }).observe(box);
  return box;
}

function word(text, x, y, attributes = {}) {
  return makeSvg('text', { x, y, ...attributes }, text);
}

/** Horizontal bars, a row each: its name, its bar, its number. */
export function drawBars(bars, description) {
  const most = Math.max(1, ...bars.map(({ value }) => value));
  return figure(description, bars.length * ROW + 4, (svg, width) => {
    const room = Math.max(20, width - NAME - FIGURE);
    bars.forEach(({ name, value, isHollow }, place) => {
      const y = place * ROW + 4;
      const length = value > 0 ? Math.max(2, (room * value) / most) : 0;
      svg.append(
        word(name, NAME - 10, y + 14, { 'text-anchor': 'end', class: 'soft' }),
        makeSvg('rect', {
          x: NAME + 1,
          y: y + 1,
          width: length,
          height: ROW - 10,
          rx: 3,
          class: isHollow ? 'column hollow' : 'column',
        }),
        word(count(value), NAME + length + 10, y + 14),
      );
    });
  });
}

/** Lines over steps, each with its name at its end. */
export function drawLines(series, description, height = 260) {
  const all = series.flatMap(({ points }) => points);
  const steps = range(all.map(([step]) => step));
  const values = roundRange(range(all.map(([, value]) => value)));
  return figure(description, height, (svg, width) => {
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const x = (step) => MARGIN.left + (inner.width * (step - steps.low)) / (steps.high - steps.low || 1);
    const y = (value) =>
      MARGIN.top + inner.height * (1 - (value - values.low) / (values.high - values.low || 1));
    drawGrid(svg, values, { width, y });
    drawSteps(svg, steps, { x, bottom: height - 12 });
    series.forEach(({ points }, place) => {
      const path = points
        .map(([step, value], index) => `${index ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`)
        .join('');
      svg.append(makeSvg('path', { d: path, class: `line line-${place}` }));
      for (const [step, value] of points)
        svg.append(dot(x(step), y(value), place, `step ${count(step)}: ${value.toPrecision(4)}`));
    });
    drawNames(svg, series, { x, y });
  });
}

function dot(x, y, place, tip) {
  return makeSvg('circle', { cx: x, cy: y, r: 2.5, class: `dot dot-${place}` }, makeSvg('title', {}, tip));
}

function drawGrid(svg, values, { width, y }) {
  for (let value = values.low; value <= values.high + values.step / 2; value += values.step) {
    svg.append(
      makeSvg('line', {
        x1: MARGIN.left,
        x2: width - MARGIN.right,
        y1: y(value),
        y2: y(value),
        class: 'grid',
      }),
      word(String(Number(value.toPrecision(6))), MARGIN.left - 8, y(value) + 4, {
        'text-anchor': 'end',
        class: 'soft',
      }),
    );
  }
}

function drawSteps(svg, steps, { x, bottom }) {
  const middle = Math.round((steps.low + steps.high) / 2);
  for (const step of new Set([steps.low, middle, steps.high])) {
    const text = step === middle ? `${count(step)} steps` : count(step);
    svg.append(word(text, x(step), bottom, { 'text-anchor': 'middle', class: 'soft' }));
  }
}

/** Names at the ends of the lines, moved apart where the ends meet. */
function drawNames(svg, series, { x, y }) {
  const ends = series.map(({ name, points }, place) => ({
    name,
    place,
    x: x(points.at(-1)[0]),
    y: y(points.at(-1)[1]),
  }));
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, index) => {
    if (index > 0) end.y = Math.max(end.y, ends[index - 1].y + 16);
    svg.append(word(end.name, end.x + 9, end.y + 4, { class: `name-${end.place}` }));
  });
}

function range(numbers) {
  return { low: Math.min(...numbers), high: Math.max(...numbers) };
}

/** The range widened to round numbers, with the step between its ticks. */
function roundRange({ low, high }) {
  const rough = (high - low || Math.abs(high) || 1) / TICKS;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((candidate) => candidate >= rough);
  return { low: Math.floor(low / step) * step, high: Math.ceil(high / step) * step, step };
}
