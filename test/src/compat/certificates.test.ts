import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import test from 'node:test';
import { promisify } from 'node:util';
import { CertificatePool, type CertificateUse, certificateOf, verify } from '@isthmus/runtime';
import { goMissing, goProgram } from '../harness/index.ts';

/** One PKI and Go's verdict, as test/compat/certificates prints it. */
interface Verdict {
  readonly case: string;
  /** DER, base64. */
  readonly leaf: string;
  readonly sent: readonly string[];
  /** PEM. */
  readonly roots: string;
  readonly use: CertificateUse;
  readonly name?: string;
  readonly now: number;
  readonly ok: boolean;
  readonly error?: string;
}

/** Where we judge otherwise than crypto/x509, by what Go or we say. */
const DIFFERENCES: readonly { readonly go?: RegExp; readonly ours?: RegExp; readonly because: string }[] = [
  {
    go: /point not on curve/,
    because: 'the handshake fails for such a key of the peer itself, and such an authority has signed nothing',
  },
  {
    ours: /its RSA key has 1024 bits: 2048 to 8192 are allowed/,
    because: "Node's OpenSSL shows no RSA key below 2,048 bits",
  },
  {
    ours: /demands certificate policies/,
    because: 'policies are not weighed, so a chain that must have one is refused',
  },
];

const execute = promisify(execFile);

test("Go's verdicts on generated PKIs are ours", { skip: goMissing(), timeout: 120_000 }, async () => {
  const { stdout } = await execute(await goProgram('certificates'), { maxBuffer: 2 ** 26 });
  const verdicts = JSON.parse(stdout) as Verdict[];
  assert.ok(verdicts.length >= 2000, `${verdicts.length} PKIs`);
  const wrong = verdicts.flatMap((each) => {
    const fault = faultOf(each);
    if ((fault === undefined) === each.ok) return [];
    const known = DIFFERENCES.some(({ go, ours }) => go?.test(each.error ?? '') || ours?.test(fault ?? ''));
    return known ? [] : [`${each.case}: Go says ${each.error ?? 'yes'}, and we say ${fault ?? 'yes'}`];
  });
  assert.deepEqual(wrong, []);
  const taken = verdicts.filter(({ ok }) => ok).length;
  assert.ok(taken > 500 && verdicts.length - taken > 500, `${taken} of ${verdicts.length} are good ones`);
});

function faultOf({ leaf, sent, roots, use, name, now }: Verdict): string | undefined {
  const read = (base64: string) => certificateOf(Buffer.from(base64, 'base64'));
  try {
    const names = name === undefined ? undefined : [name];
    verify({ leaf: read(leaf), sent: sent.map(read) }, CertificatePool.of(roots), { use, names, now });
    return undefined;
  } catch (error) {
    // What is no verdict is a bug.
    if (error instanceof TypeError || error instanceof RangeError) throw error;
    return (error as Error).message;
  }
}
