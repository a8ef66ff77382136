import type { AgentName } from '@isthmus/tunnel';

/** Longest agent id, tenant name and reason, in characters. The records of a thousand agents stay below 2 MB. */
const LONGEST = { agentId: 1_000, tenant: 253, reason: 500 } as const;

/** @throws RangeError if a text is too long or a name is empty. */
export function checkQuarantine({ tenant, agentId }: AgentName, reason = ''): void {
  if (tenant === '' || agentId === '') throw new RangeError('a quarantine needs the tenant and the id of its agent');
  for (const [name, text] of Object.entries({ agentId, tenant, reason })) {
    const longest = LONGEST[name as keyof typeof LONGEST];
    if (text.length > longest) throw new RangeError(`the ${name} of a quarantine is longer than ${longest} characters`);
  }
}
