// The map of the labels: thousands of points on a canvas, seen ones round, unseen ones triangles.
// Hovering or the arrow keys choose a point; its name and neighbours stand beside it as text, which is also what
// a screen reader gets. Touches only the elements it makes.

import { button, counted, debounced, foreign, make, quotedName, seenMark } from './dom.js';

const PADDING = 16;
const REACH = 14;
const NEIGHBOURS = 8;
const MOST_ZOOM = 40;
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The elements of a map of these points. */
export function drawMap(points) {
  const map = new LabelMap(points);
  return [map.introduction(), map.controls(), make('div', { class: 'map' }, map.canvas, map.tip), map.chosen];
}

class LabelMap {
  constructor(points) {
    this.points = normalised(points);
    this.zoom = { scale: 1, x: 0.5, y: 0.5 };
    this.found = new Set();
    this.current = null;
    this.canvas = make('canvas', {
      'data-test': 'map',
      tabindex: '0',
      role: 'img',
      'aria-describedby': 'map-chosen',
      'aria-label': `Map of ${counted(points.length, 'label')}. The arrow keys go from label to label, plus and minus zoom.`,
    });
    this.tip = make('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
    this.chosen = make(
      'div',
      { class: 'chosen', id: 'map-chosen', role: 'status', 'data-test': 'map-chosen' },
      make('p', { class: 'soft' }, 'Choose a point to read its name and its neighbours.'),
    );
    this.listen();
  }

  introduction() {
    const unseen = this.points.filter(({ seen }) => !seen).length;
    return make(
      'p',
      { class: 'hint legend' },
      'Labels that mean similar things lie near each other. ',
      make('span', { class: 'key round' }),
      `${counted(this.points.length - unseen, 'seen label')} `,
      make('span', { class: 'key triangle' }),
      counted(unseen, 'unseen label'),
    );
  }

  controls() {
    const search = make('input', {
      id: 'map-search',
      type: 'search',
      dir: 'auto',
      autocomplete: 'off',
      'data-test': 'map-search',
    });
    search.addEventListener(
      'input',
      debounced(() => this.find(search.value), 120),
    );
    return make(
      'div',
      { class: 'controls' },
      make('div', { class: 'field grow' }, make('label', { for: 'map-search' }, 'Find on the map'), search),
      make(
        'div',
        { class: 'pair' },
        button('+', () => this.zoomBy(1.6), { 'aria-label': 'Zoom in' }),
        button('−', () => this.zoomBy(1 / 1.6), { 'aria-label': 'Zoom out' }),
        button('Whole map', () => this.reset()),
      ),
    );
  }

  listen() {
    new ResizeObserver(() => this.fit()).observe(this.canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => this.hideTip());
    this.canvas.addEventListener('pointerdown', (event) => this.grab(event));
    this.canvas.addEventListener('pointerup', (event) => this.drop(event));
    this.canvas.addEventListener('pointercancel', () => this.letGo());
    this.canvas.addEventListener('keydown', (event) => this.press(event));
    this.canvas.addEventListener('blur', () => this.hideTip());
    this.canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
  }

  fit() {
    this.size = { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.size.width * ratio);
    this.canvas.height = Math.round(this.size.height * ratio);
    this.redraw();
  }

  /** Draws once before the next frame, however often it is asked. */
  redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  /** Where a point stands on the canvas. */
  place({ x, y }) {
    const { width, height } = this.size;
    return [
      width / 2 + (x - this.zoom.x) * this.zoom.scale * (width - 2 * PADDING),
      height / 2 + (y - this.zoom.y) * this.zoom.scale * (height - 2 * PADDING),
    ];
  }

  paint() {
    if (!this.size?.width) return;
    const context = this.canvas.getContext('2d');
    const colours = getComputedStyle(this.canvas);
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.size.width, this.size.height);
    const isDimmed = this.found.size > 0;
    const layers = [
      { wanted: (point) => point.seen, add: circle, colour: colours.getPropertyValue('--accent') },
      { wanted: (point) => !point.seen, add: triangle, colour: colours.getPropertyValue('--second') },
    ];
    for (const { wanted, add, colour } of layers) {
      const own = this.points.filter(wanted);
      this.paintAll(context, own, { add, colour, alpha: isDimmed ? 0.15 : 0.65, radius: 2.6 });
      this.paintAll(
        context,
        own.filter((point) => this.found.has(point)),
        { add, colour, alpha: 1, radius: 4.5 },
      );
    }
    if (this.current) this.paintCurrent(context, colours.getPropertyValue('--ink'));
  }

  paintAll(context, points, { add, colour, alpha, radius }) {
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.beginPath();
    for (const point of points) add(context, ...this.place(point), radius);
    context.fill();
    context.globalAlpha = 1;
  }

  paintCurrent(context, ink) {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.beginPath();
    circle(context, ...this.place(this.current), 8);
    context.stroke();
  }

  hover(event) {
    if (this.held) {
      this.drag(event);
      return;
    }
    const near = this.nearestTo(event.offsetX, event.offsetY);
    if (near) this.showTip(near);
    else this.hideTip();
  }

  nearestTo(left, top) {
    let [best, distance] = [null, REACH];
    for (const point of this.points) {
      const [x, y] = this.place(point);
      const own = Math.hypot(x - left, y - top);
      if (own < distance) [best, distance] = [point, own];
    }
    return best;
  }

  showTip(point) {
    const [x, y] = this.place(point);
    this.tip.replaceChildren(foreign('span', point.name), ' ', seenMark(point.seen));
    this.tip.hidden = false;
    const left = Math.min(x + 12, this.size.width - this.tip.offsetWidth - 4);
    const top = y > this.size.height / 2 ? y - this.tip.offsetHeight - 10 : y + 12;
    this.tip.style.setProperty('transform', `translate(${Math.max(4, left)}px, ${top}px)`);
  }

  hideTip() {
    this.tip.hidden = true;
  }

  choose(point) {
    this.current = point;
    this.redraw();
    const list = this.neighboursOf(point).map((other) =>
      make('li', {}, foreign('span', other.name), ' ', seenMark(other.seen)),
    );
    this.chosen.replaceChildren(
      make('p', {}, foreign('strong', point.name), ' ', seenMark(point.seen), ' ', foreign('code', point.id)),
      make('p', { class: 'soft' }, 'Nearest on the map:'),
      make('ul', { class: 'inline' }, ...list),
    );
  }

  neighboursOf(point) {
    const others = this.points.filter((other) => other !== point);
    const distance = (other) => Math.hypot(other.x - point.x, other.y - point.y);
    return others.sort((a, b) => distance(a) - distance(b)).slice(0, NEIGHBOURS);
  }

  press(event) {
    if (event.key in DIRECTIONS) this.step(...DIRECTIONS[event.key]);
    else if (event.key === '+' || event.key === '=') this.zoomBy(1.6);
    else if (event.key === '-') this.zoomBy(1 / 1.6);
    else return;
    event.preventDefault();
  }

  /** Goes to the nearest label in a direction: near counts, and straight ahead counts more than aside. */
  step(right, down) {
    const from = this.current ?? { x: this.zoom.x, y: this.zoom.y };
    const [x, y] = this.place(from);
    let [best, cost] = [null, Infinity];
    for (const point of this.points) {
      const [dx, dy] = this.place(point).map((value, axis) => value - [x, y][axis]);
      const ahead = dx * right + dy * down;
      const aside = Math.abs(dx * down) + Math.abs(dy * right);
      if (point !== this.current && ahead > 0.01 && ahead + 2 * aside < cost)
        [best, cost] = [point, ahead + 2 * aside];
    }
    if (!best) return;
    this.bringIntoView(best);
    this.choose(best);
    this.showTip(best);
  }

  bringIntoView(point) {
    const [x, y] = this.place(point);
    const isInside = x > 0 && y > 0 && x < this.size.width && y < this.size.height;
    if (!isInside) Object.assign(this.zoom, { x: point.x, y: point.y });
  }

  find(text) {
    const wanted = text.trim().toLowerCase();
    const matches = this.points.filter(({ name, id }) => `${name}\n${id}`.toLowerCase().includes(wanted));
    this.found = new Set(wanted === '' ? [] : matches);
    if (wanted !== '' && matches.length === 0)
      this.chosen.replaceChildren(
        make('p', { class: 'soft' }, `No label is like ${quotedName(text.trim())}.`),
      );
    if (wanted !== '' && matches.length > 0) this.choose(matches[0]);
    this.redraw();
  }

  zoomBy(factor) {
    this.zoom.scale = Math.min(MOST_ZOOM, Math.max(1, this.zoom.scale * factor));
    if (this.current && factor > 1) Object.assign(this.zoom, { x: this.current.x, y: this.current.y });
    if (this.zoom.scale === 1) Object.assign(this.zoom, { x: 0.5, y: 0.5 });
    this.hideTip();
    this.redraw();
  }

  reset() {
    this.zoom = { scale: 1, x: 0.5, y: 0.5 };
    this.redraw();
  }

  /** With Ctrl the wheel zooms; without, the page scrolls as ever. */
  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2);
  }

  grab(event) {
    this.held = { x: event.offsetX, y: event.offsetY, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const [dx, dy] = [event.offsetX - this.held.x, event.offsetY - this.held.y];
    if (!this.held.moved && Math.hypot(dx, dy) < 4) return;
    this.zoom.x -= dx / (this.zoom.scale * this.size.width);
    this.zoom.y -= dy / (this.zoom.scale * this.size.height);
    this.held = { x: event.offsetX, y: event.offsetY, moved: true };
    this.hideTip();
    this.redraw();
  }

  drop(event) {
    const near = this.held && !this.held.moved && this.nearestTo(event.offsetX, event.offsetY);
    this.letGo();
    if (near) this.choose(near);
  }

  letGo() {
    this.held = null;
  }
}

/** The points with their coordinates between 0 and 1. */
function normalised(points) {
  const spread = (axis) => {
    let [low, high] = [Infinity, -Infinity];
    for (const point of points) [low, high] = [Math.min(low, point[axis]), Math.max(high, point[axis])];
    return (value) => (high > low ? (value - low) / (high - low) : 0.5);
  };
  const [x, y] = [spread('x'), spread('y')];
  return points.map((point) => ({ ...point, x: x(point.x), y: 1 - y(point.y) }));
}

function circle(context, x, y, radius) {
  context.moveTo(x + radius, y);
  context.arc(x, y, radius, 0, 2 * Math.PI);
}

function triangle(context, x, y, radius) {
  const size = radius * 1.5;
  context.moveTo(x, y - size);
  context.lineTo(x + size, y + size * 0.8);
  context.lineTo(x - size, y + size * 0.8);
  context.closePath();
}
