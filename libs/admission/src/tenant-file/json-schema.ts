import { toJsonSchema } from '@valibot/to-json-schema';
import { tenantFile } from './schema.ts';

/** The text of docs/tenant.schema.json: what an editor checks, without the rules that no JSON Schema can say. */
export function tenantSchemaJson(): string {
  const { $schema, ...schema } = toJsonSchema(tenantFile, { errorMode: 'ignore', typeMode: 'input' });
  return `${JSON.stringify({ $schema, title: 'A tenant of an Isthmus plane', ...schema }, null, 1)}\n`;
}
