/** The JSON files that the Python side is tested with, too. */

import { readFileSync } from 'node:fs';

import type { Json, JsonObject } from '../src/protocol.js';

const FOLDER = new URL('../../../../tests/fixtures/bundles/', import.meta.url);

/** Return a bundle: its name without ".json". */
export function bundle(name: string): JsonObject {
  const text = readFileSync(new URL(`${name}.json`, FOLDER), 'utf-8');
  return JSON.parse(text) as JsonObject;
}

/** Return a value as an object. */
export function obj(value: Json | undefined): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`an object was expected, not ${JSON.stringify(value)}`);
  }
  return value;
}

/** Return a value as a list of objects. */
export function list(value: Json | undefined): JsonObject[] {
  if (!Array.isArray(value)) {
    throw new Error(`a list was expected, not ${JSON.stringify(value)}`);
  }
  return value.map(obj);
}
