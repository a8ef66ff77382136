import { adminApi } from '@isthmus/proto/admin';
import { type Candidate, type ExplainedStep, formatDestination } from '@isthmus/tunnel';
import type { AdminBackend } from '../backend.ts';
import { destinationOf, routingOf } from './routing.ts';
import { routingAdvice, verdictOf } from './routing-advice.ts';
import { tenantAsked } from './tenant-asked.ts';

const { STANDING_TAKEN, STANDING_EQUAL, STANDING_LATER, STANDING_NOT } = adminApi.Candidate_Standing;

const STANDINGS = {
  taken: STANDING_TAKEN,
  equal: STANDING_EQUAL,
  later: STANDING_LATER,
  not: STANDING_NOT,
} as const satisfies Record<Candidate['standing'], adminApi.Candidate_Standing>;

type ExplainRpc = Pick<adminApi.AdminServiceImplementation, 'explain'>;

export function explainRpc(backend: AdminBackend): ExplainRpc {
  return {
    async explain(request) {
      const routing = routingOf(backend.routing);
      const destination = destinationOf(request.destination);
      const tenant = tenantAsked(backend, request.tenant);
      const explanation = routing.explain(tenant, destination, request.caller);
      const { taken, policy } = explanation;
      return {
        destination: formatDestination(destination),
        tenant,
        zone: routing.zone,
        steps: explanation.steps.map(stepMessage),
        others: explanation.others.map(candidateMessage),
        sessionId: taken?.sessionId ?? '',
        agentId: taken?.agentId ?? '',
        hubId: taken?.hubId ?? '',
        verdict: verdictOf(explanation, { tenant, routing, backend }),
        advice: routingAdvice(explanation, { tenant, host: destination.host, backend }),
        ...(policy && { policy }),
      };
    },
  };
}

function stepMessage({ strategy, keys, candidates }: ExplainedStep): adminApi.RoutingStep {
  const taken = candidates.some(({ standing }) => standing === 'taken');
  return { strategy, keys: [...keys], candidates: candidates.map(candidateMessage), taken };
}

function candidateMessage({ session, open, ...candidate }: Candidate): adminApi.Candidate {
  const { sessionId, agentId, hubId } = session;
  const { key, zone, draining, quarantined, reachable, suspected, standing, why } = candidate;
  return {
    sessionId,
    agentId,
    hubId,
    key,
    zone,
    why,
    draining,
    reachable,
    suspected,
    open,
    standing: STANDINGS[standing],
    quarantined: quarantined !== undefined,
    quarantineReason: quarantined ?? '',
  };
}
