import { toJsonSchema } from '@valibot/to-json-schema';
import { tenantFile } from './tenant-schema.ts';

/** The longest line of the schema that is not broken, in characters. */
const WIDTH = 150;

const OPTIONS = { errorMode: 'ignore', typeMode: 'input' } as const;

/** The schema of a tenant's file. What is a file's name says so: `file: true`. */
export function tenantSchema(): object {
  return toJsonSchema(tenantFile, OPTIONS);
}

/** The text of docs/tenant.schema.json: what an editor checks, without the rules that no JSON Schema can say. */
export function tenantSchemaJson(): string {
  const { $schema, ...schema } = toJsonSchema(tenantFile, { ...OPTIONS, ignoreActions: ['metadata'] });
  return `${printed({ $schema, title: 'A tenant of an Isthmus plane', ...schema }, 0)}\n`;
}

/** JSON with an object on one line where it fits. */
function printed(value: unknown, depth: number): string {
  const line = JSON.stringify(value);
  if (typeof value !== 'object' || value === null || Array.isArray(value) || line.length + depth <= WIDTH) return line;
  const inner = Object.entries(value)
    .filter(([, part]) => part !== undefined)
    .map(([key, part]) => `${' '.repeat(depth + 1)}${JSON.stringify(key)}: ${printed(part, depth + 1)}`);
  return `{\n${inner.join(',\n')}\n${' '.repeat(depth)}}`;
}
