import type { AgentName } from '@isthmus/tunnel';

/** Longest agent id, tenant name and reason, in characters. The records of a thousand agents stay below 2 MB. */
const LONGEST = { agentId: 1_000, tenant: 253, reason: 500 } as const;

/** @throws RangeError if a text is too long or a name is empty. */
export function checkQuarantine({ tenant, agentId }: AgentName, reason = ''): void {
  if (tenant === '' || agentId === '') throw new RangeError('an agent in quarantine is named by its tenant and its id');
  for (const [name, text] of Object.entries({ agentId, tenant, reason })) {
    const longest = LONGEST[name as keyof typeof LONGEST];
    if (text.length > longest) throw new RangeError(`the ${name} of a quarantine is longer than ${longest} characters`);
  }
}
