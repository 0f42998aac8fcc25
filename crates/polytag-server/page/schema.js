// Schemas of OpenAPI 3.1: references followed, types in words, fields as a list, and an example where none is given.
// Pure but for the elements it makes.

import { foreign, make } from './dom.js';

const DEEPEST = 6;

/** The schemas of one document. */
export class Schemas {
  constructor(root) {
    this.root = root;
  }

  /** The thing itself, where it is a reference to it. */
  resolve(thing) {
    let [found, hops] = [thing ?? {}, 0];
    while (found?.$ref && hops < DEEPEST) {
      const steps = found.$ref
        .replace(/^#\//, '')
        .split('/')
        .map((step) => decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~'));
      found = steps.reduce((place, step) => place?.[step], this.root);
      hops += 1;
    }
    return found ?? {};
  }

  /** With the parts of an `allOf` laid together. */
  merged(thing) {
    const schema = this.resolve(thing);
    if (!schema.allOf) return schema;
    const parts = schema.allOf.map((part) => this.merged(part));
    return {
      ...Object.assign({}, ...parts),
      ...schema,
      allOf: undefined,
      properties: Object.assign({}, ...parts.map((part) => part.properties), schema.properties),
      required: [...parts.flatMap((part) => part.required ?? []), ...(schema.required ?? [])],
    };
  }

  /** "string", "list of Label", "text or null". */
  typeText(thing) {
    const name = thing?.$ref?.split('/').at(-1);
    if (name) return name;
    const schema = thing ?? {};
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' or ');
    const choices = schema.oneOf ?? schema.anyOf;
    if (choices) return choices.map((choice) => this.typeText(choice)).join(' or ');
    if (schema.allOf) return schema.allOf.map((part) => this.typeText(part)).join(' with ');
    const types = [schema.type ?? 'any']
      .flat()
      .map((type) => (type === 'array' ? `list of ${this.typeText(schema.items)}` : type));
    return types.join(' or ');
  }

  /** What a schema holds, as nested lists; null where its type says it all. */
  describe(thing, depth = 0) {
    const schema = this.merged(thing);
    if (depth > DEEPEST) return null;
    if (schema.properties) return this.fields(schema, depth);
    if (schema.items) return this.describe(schema.items, depth + 1);
    const choices = (schema.oneOf ?? schema.anyOf ?? [])
      .map((choice) => this.describe(choice, depth + 1))
      .filter(Boolean);
    return choices.length ? make('div', {}, ...choices) : null;
  }

  fields(schema, depth) {
    const list = make('dl', { class: 'fields' });
    for (const [name, field] of Object.entries(schema.properties)) {
      const note = schema.required?.includes(name) ? '' : ' optional';
      const description = field.description ?? this.merged(field).description;
      list.append(
        make(
          'dt',
          {},
          make('code', {}, name),
          ' ',
          make('span', { class: 'soft' }, this.typeText(field), note),
        ),
        make('dd', {}, description ? foreign('p', description) : null, this.describe(field, depth + 1)),
      );
    }
    return list;
  }

  /** An example of a media type or a schema: the one that is given, else one made up from the types. */
  example({ example, examples, schema }) {
    if (example !== undefined) return example;
    const first = Object.values(examples ?? {})[0];
    if (first !== undefined) return this.resolve(first).value ?? first;
    return this.exampleOf(schema);
  }

  exampleOf(thing, depth = 0) {
    const schema = this.merged(thing);
    if (depth > DEEPEST) return null;
    const given =
      schema.example ?? schema.examples?.[0] ?? schema.const ?? schema.default ?? schema.enum?.[0];
    if (given !== undefined) return given;
    const choice = (schema.oneOf ?? schema.anyOf)?.find((candidate) => candidate.type !== 'null');
    if (choice) return this.exampleOf(choice, depth + 1);
    const type = [schema.type ?? (schema.properties ? 'object' : 'string')].flat()[0];
    if (type === 'array') return [this.exampleOf(schema.items, depth + 1)];
    if (type === 'object') return this.exampleObject(schema, depth);
    return { integer: 1, number: 0.5, boolean: true, null: null }[type] ?? 'text';
  }

  /** An object with the fields it must have, or with all where it must have none. */
  exampleObject(schema, depth) {
    const names = schema.required?.length ? schema.required : Object.keys(schema.properties ?? {});
    return Object.fromEntries(
      names.map((name) => [name, this.exampleOf(schema.properties?.[name], depth + 1)]),
    );
  }
}
