import { parse, stringify } from 'yaml';

/** A JSON schema, as far as a tenant's file needs one. */
interface Schema {
  type?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  anyOf?: Schema[];
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  minimum?: number;
  maximum?: number;
  /** Whether it is a file's name. */
  file?: boolean;
}

type CrdSchema = Omit<Schema, 'file' | 'properties' | 'items'> & {
  properties?: Record<string, CrdSchema>;
  items?: CrdSchema;
  'x-kubernetes-int-or-string'?: true;
  'x-kubernetes-validations'?: { rule: string; message: string }[];
};

/** The longest lists of objects by their place: the API server estimates what rules cost from them, and refuses what might cost too much. */
const LISTS: Readonly<Record<string, number>> = {
  agents: 64,
  callers: 64,
  'callers.passwords': 64,
  'dial.deny': 128,
  'dial.allow': 128,
  'dial.direct': 128,
  scrape: 64,
};
/** The longest list of texts. */
const TEXTS = 256;
/** The longest text: of names, addresses and URLs. */
const TEXT = 1024;

/** Fields of a tenant's file that an object does not have: only who writes files may name a socket, and the sync says where a file is from. */
const ABSENT = ['callers.unixSocket', 'source'];

/** What the file's check says that a schema cannot say by itself, by place. */
const RULES: Readonly<Record<string, { rule: string; message: string }[]>> = {
  '': [
    {
      rule: "(has(self.tenant) ? self.tenant : '') == (has(oldSelf.tenant) ? oldSelf.tenant : '')",
      message: 'tenant cannot change: its agents and callers are known by it',
    },
  ],
  agents: [exactlyOne('certificates', 'tokens', 'tokenReview')],
  'agents.certificates': [someAuthority(), ownAuthority()],
  'agents.tokens': [exactlyOne('keys', 'jwksUrl')],
  callers: [
    exactlyOne('port', 'certificates', 'tokens', 'tokenReview', 'passwords'),
    { rule: '!has(self.name) || has(self.port)', message: 'name goes with port' },
  ],
  'callers.certificates': [someAuthority(), ownAuthority()],
  'callers.tokens': [exactlyOne('keys', 'jwksUrl')],
  ...Object.fromEntries(
    ['deny', 'allow', 'direct'].map((list) => [
      `dial.${list}`,
      [
        { rule: 'has(self.cidr) || has(self.host) || has(self.ports)', message: 'expected cidr, host or ports' },
        { rule: '!(has(self.cidr) && has(self.host))', message: 'expected cidr or host, not both' },
      ],
    ]),
  ),
  scrape: [exactlyOne('targets', 'nodes')],
};

function exactlyOne(...fields: string[]): { rule: string; message: string } {
  const count = `[${fields.map((field) => `has(self.${field})`).join(', ')}].filter(each, each).size() == 1`;
  return { rule: count, message: `expected exactly one of ${fields.join(', ')}` };
}

function someAuthority(): { rule: string; message: string } {
  return { rule: 'has(self.ca) || has(self.trustDomain)', message: 'expected ca or trustDomain' };
}

function ownAuthority(): { rule: string; message: string } {
  return { rule: 'has(self.ca) || (!has(self.shared) && !has(self.crl))', message: 'shared and crl go with ca' };
}

const NAME = { type: 'string', minLength: 1, maxLength: 253 } as const;

function place(what: string): CrdSchema {
  return {
    type: 'object',
    description: `A key of a ${what}, which has the label isthmus.dev/plane.`,
    properties: {
      name: { ...NAME, description: `Name of the ${what}.` },
      key: { ...NAME, description: 'The key in it.' },
      namespace: {
        ...NAME,
        maxLength: 63,
        description: `Its namespace. Default: that of this object. Another one must allow it: annotation isthmus.dev/allow-tenants-of of the ${what}, a list of namespaces with commas, or *.`,
      },
    },
    required: ['name', 'key'],
  };
}

/** In place of a file's name. */
function reference(description: string | undefined): CrdSchema {
  return {
    type: 'object',
    ...(description !== undefined && { description }),
    properties: { secretRef: place('secret'), configMapRef: place('config map') },
    'x-kubernetes-validations': [exactlyOne('secretRef', 'configMapRef')],
  };
}

/** @param at the place in a tenant's file, without the numbers of lists */
function converted(schema: Schema, at: string): CrdSchema {
  const { description, required, enum: values } = schema;
  const described = description === undefined ? {} : { description };
  const rules = RULES[at] && { 'x-kubernetes-validations': RULES[at] };
  if (schema.file) return reference(description);
  if (schema.anyOf) return { ...described, 'x-kubernetes-int-or-string': true };
  if (schema.type === 'object') {
    const fields = Object.entries(schema.properties ?? {}).map(([name, field]) => {
      const within = at === '' ? name : `${at}.${name}`;
      return [name, ABSENT.includes(within) ? undefined : converted(field, within)] as const;
    });
    const properties = Object.fromEntries(fields.filter(([, field]) => field)) as Record<string, CrdSchema>;
    const needed = required?.filter((name) => at !== '' || name !== 'tenant') ?? [];
    return { type: 'object', ...described, properties, ...(needed.length > 0 && { required: needed }), ...rules };
  }
  if (schema.type === 'array') {
    const items = converted(schema.items ?? {}, at);
    const maxItems = items.type === 'object' ? (LISTS[at] ?? TEXTS) : TEXTS;
    return { type: 'array', ...described, items, minItems: 1, maxItems };
  }
  const { type, pattern, minLength, maxLength, minimum, maximum } = schema;
  return JSON.parse(
    JSON.stringify({
      ...{ type, ...described, enum: values, pattern, minimum, maximum },
      minLength: type === 'string' && !values ? (minLength ?? 1) : undefined,
      maxLength: type === 'string' && !values ? Math.min(maxLength ?? TEXT, TEXT) : undefined,
    }),
  );
}

const CLUSTER_PROFILE: CrdSchema = {
  type: 'boolean',
  description:
    'Whether a ClusterProfile of the same name says how its API server is reached through the plane (KEP-4322), with the token in the secret NAME-plane-access.',
};

/** As far as it is read here. */
interface Definition {
  readonly spec: {
    readonly versions: readonly [
      { readonly schema: { readonly openAPIV3Schema: { readonly properties: { spec: CrdSchema } } } },
    ];
  };
}

/**
 * Puts a tenant's file with references in place of files' names into the CustomResourceDefinition of `Tenant`, as its spec.
 * @param file the JSON schema of a tenant's file
 * @param text the definition, whose other parts are written by hand
 */
export function tenantCrd(file: object, text: string): string {
  const definition = parse(text) as Definition;
  const spec = converted(file as Schema, '');
  definition.spec.versions[0].schema.openAPIV3Schema.properties.spec = {
    ...spec,
    properties: { ...spec.properties, clusterProfile: CLUSTER_PROFILE },
    description:
      "The fields of a tenant's file (docs/TENANTS.md), with a secretRef or configMapRef where the file names a file. Of a Cluster or TenantControlPlane of the same name, they override what follows from that.",
  };
  const header = '# scripts/generate.mjs writes the schema of spec, from libs/admission/src/tenant-schema.ts.\n';
  return header + stringify(definition, { lineWidth: 0, aliasDuplicateObjects: false });
}
