import { copyFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { TenantFile } from '@isthmus/admission';
import type { Authority, Flags, Identity } from '../harness/index.ts';
import type { TenantsPlane } from './rig.ts';
import { serialOf, type TenantTrust } from './tenant-trust.ts';
import { TokenIssuer } from './token-issuer.ts';

/**
 * Validity of a credential that expires while the test runs, in milliseconds: long enough to connect and dial on a busy machine. Some of the
 * other rows take as long.
 */
export const SOON = 25_000;

const AGENT = 'system:serviceaccount:kube-system:konnectivity-agent';

/** What a row gives to its tenant's peers, in place of the usual. */
interface Given {
  readonly file?: Partial<TenantFile>;
  readonly agent?: Identity;
  readonly agentFlags?: Flags;
  readonly caller?: Identity;
}

interface Parts {
  readonly plane: TenantsPlane;
  readonly trust: TenantTrust;
  /** A directory for the row's own files. */
  readonly dir: string;
}

/** One way in which authorisation ends: what it gives, what it then does, and whose connections end, with which reason. */
export interface Row {
  readonly name: string;
  readonly ends: 'agent' | 'caller' | 'both';
  readonly why: RegExp;
  /** Whether another agent of the tenant, which came by the same way, stands on a credential that stays valid. */
  readonly beside?: boolean;
  /** Whether it ends by the clock, without an act. */
  readonly expires?: true;
  prepare(parts: Parts): Promise<Given & { act(): Promise<void> }>;
}

const never = async () => {};

async function copied(from: Authority, dir: string): Promise<string> {
  const path = join(dir, 'ca.pem');
  await copyFile(from.cert, path);
  return path;
}

export const rows: readonly Row[] = [
  {
    name: "an agent's certificate expires",
    expires: true,
    ends: 'agent',
    why: /its credential expired at/,
    beside: true,
    prepare: async ({ trust }) => ({ agent: await trust.agent('edge-1', { validMs: SOON }), act: never }),
  },
  {
    name: "a caller's certificate expires",
    expires: true,
    ends: 'caller',
    why: /its credential expired at/,
    prepare: async ({ trust }) => ({ caller: await trust.caller('kube-apiserver', { validMs: SOON }), act: never }),
  },
  {
    name: "an agent's CA is replaced",
    ends: 'agent',
    why: /authority that issued its certificate was removed/,
    async prepare({ plane, trust, dir }) {
      const ca = await copied(trust.cluster, dir);
      const next = await plane.directory.trust(`${trust.name}-next`);
      const act = () => copyFile(next.cluster.cert, ca);
      return { file: { agents: [{ certificates: { ca } }] }, act };
    },
  },
  {
    name: "a caller's CA is replaced",
    ends: 'caller',
    why: /authority that issued its certificate was removed/,
    async prepare({ plane, trust, dir }) {
      const ca = await copied(trust.callers, dir);
      const next = await plane.directory.trust(`${trust.name}-next`);
      return { file: { callers: [{ certificates: { ca } }] }, act: () => copyFile(next.callers.cert, ca) };
    },
  },
  {
    name: 'an agent and a caller are denied by name',
    ends: 'both',
    why: /deny/,
    prepare: async ({ plane, trust }) => ({
      act: () => plane.directory.write({ ...trust.file, deny: { agents: ['edge-1'], callers: ['kube-apiserver'] } }),
    }),
  },
  {
    name: "a caller's certificate is denied by its serial number",
    ends: 'caller',
    why: /deny\.serials/,
    async prepare({ plane, trust }) {
      const caller = await trust.caller();
      const act = () => plane.directory.write({ ...trust.file, deny: { serials: [serialOf(caller)] } });
      return { caller, act };
    },
  },
  {
    name: "an agent's certificate is in a new revocation list",
    ends: 'agent',
    why: /revoked/,
    beside: true,
    async prepare({ trust, dir }) {
      const [crl, agent] = [join(dir, 'crl.pem'), await trust.agent('edge-1')];
      await writeFile(crl, await trust.cluster.revocations());
      const act = async () => writeFile(crl, await trust.cluster.revocations(agent));
      return { file: { agents: [{ certificates: { ca: trust.cluster.cert, crl } }] }, agent, act };
    },
  },
  {
    name: "a caller's certificate is in a new revocation list",
    ends: 'caller',
    why: /revoked/,
    async prepare({ trust, dir }) {
      const [crl, caller] = [join(dir, 'crl.pem'), await trust.caller()];
      await writeFile(crl, await trust.callers.revocations());
      const act = async () => writeFile(crl, await trust.callers.revocations(caller));
      return { file: { callers: [{ certificates: { ca: trust.callers.cert, crl } }] }, caller, act };
    },
  },
  {
    name: "what a tenant's agents may claim is narrowed",
    ends: 'agent',
    why: /cidr=10\.1\.0\.0\/16 is not covered by claims\.cidr/,
    beside: true,
    async prepare({ plane, trust }) {
      const claims = (cidr: string) => ({ claims: { cidr: [cidr], defaultRoute: true } });
      const act = () => plane.directory.write({ ...trust.file, ...claims('10.2.0.0/16') });
      return { file: claims('10.0.0.0/8'), agentFlags: { 'agent-identifiers': 'cidr=10.1.0.0/16' }, act };
    },
  },
  {
    name: 'the tenant is removed',
    ends: 'both',
    why: /its tenant was removed/,
    prepare: async ({ plane, trust }) => ({ act: () => plane.directory.remove(trust.name) }),
  },
  {
    name: "an agent's token expires",
    expires: true,
    ends: 'agent',
    why: /its credential expired at/,
    async prepare({ trust, dir }) {
      const { tokens, token, issuer } = await issuerIn(dir, trust);
      await writeFile(token, issuer.token(AGENT, { exp: Math.floor((Date.now() + SOON) / 1000) }));
      return { file: { agents: [{ tokens }] }, agentFlags: byToken(token), act: never };
    },
  },
  {
    name: "the issuer's keys are rotated",
    ends: 'agent',
    why: /key/,
    async prepare({ trust, dir }) {
      const { tokens, token, issuer } = await issuerIn(dir, trust);
      const act = async () => {
        issuer.rotate();
        await writeFile(tokens.keys, issuer.jwks);
      };
      return { file: { agents: [{ tokens }] }, agentFlags: byToken(token), act };
    },
  },
];

/** An issuer whose keys and a token are files. */
async function issuerIn(dir: string, { name }: TenantTrust) {
  const issuer = new TokenIssuer(`https://${name}.example`);
  const [keys, token] = [join(dir, 'jwks.json'), join(dir, 'token')];
  await writeFile(keys, issuer.jwks);
  await writeFile(token, issuer.token(AGENT));
  return { issuer, token, tokens: { issuer: issuer.issuer, audience: issuer.audience, keys } };
}

function byToken(token: string): Flags {
  return { 'agent-cert': undefined, 'agent-key': undefined, 'service-account-token-path': token };
}
