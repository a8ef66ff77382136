import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentIdentifiers } from '@isthmus/tunnel';
import { serves } from './strategies.ts';

const NONE: AgentIdentifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

test('an agent serves a host by its addresses, names, prefixes or default route, as dials find it', () => {
  const served: readonly [of: Partial<AgentIdentifiers>, host: string, expected: boolean][] = [
    [{}, '10.0.0.1', false],
    [{ defaultRoute: true }, 'anything', true],
    [{ ipv4: ['10.0.0.1'] }, '10.0.0.1', true],
    [{ ipv4: ['10.0.0.1'] }, '10.0.0.2', false],
    [{ ipv6: ['fd00::1'] }, 'fd00:0::1', true],
    [{ host: ['Node-1.example'] }, 'node-1.example', true],
    [{ cidr: ['10.1.0.0/16', 'fd00::/8'] }, '10.1.2.3', true],
    [{ cidr: ['10.1.0.0/16', 'fd00::/8'] }, 'fd12::1', true],
    [{ cidr: ['10.1.0.0/16'] }, '10.2.0.1', false],
    [{ cidr: ['10.1.0.0/16,10.2.0.0/16', '10.3.0.0/16'] }, '10.1.0.1', false],
    [{ cidr: ['10.1.0.0/16,10.2.0.0/16', '10.3.0.0/16'] }, '10.3.0.1', true],
    [{ cidr: ['10.1.0.0/16'] }, 'node-1.example', false],
  ];
  for (const [of, host, expected] of served) assert.equal(serves({ ...NONE, ...of }, host), expected, host);
});
