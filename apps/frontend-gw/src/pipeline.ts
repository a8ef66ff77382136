import { type RoutingOptions, routed, type Suspects } from '@isthmus/directory';
import type { Tenancy } from '@isthmus/plane';
import {
  type Attach,
  AttachRefused,
  attachesInTurns,
  type Dial,
  DialError,
  type DialLimiter,
  type GatewayTunnels,
  pipeline,
  refuseWhenScarce,
  type Stage,
  takeTurns,
} from '@isthmus/tunnel';
import type { DirectDials } from './direct.ts';

interface GatewayStagesOptions extends RoutingOptions {
  /** For texts. */
  readonly gatewayId: string;
  readonly suspects: Suspects;
  readonly limiter: Pick<DialLimiter, 'limit'>;
  /** Set where several tenants take turns. */
  readonly tenancy?: Pick<Tenancy, 'permits'> | undefined;
  /** Unset where neither a flag nor a tenant's file can name what the gateway dials itself. */
  readonly directDials?: Pick<DirectDials, 'direct'> | undefined;
  /** Unset: tunnels end with what carries them. */
  readonly gatewayTunnels?: Pick<GatewayTunnels, 'resume'> | undefined;
}

/** What a dial passes in a gateway, from the caller's edge on. The test beside it says why in this order. */
export function gatewayStages({ gatewayId, limiter, tenancy, gatewayTunnels }: GatewayStagesOptions): readonly Stage[] {
  // By name or literal address. An agent judges what a name was resolved to.
  const permit: Stage = { name: 'permit', enter: (request) => tenancy?.permits(request) };
  const resume = gatewayTunnels?.resume;
  const scarce = refuseWhenScarce(`gateway ${gatewayId}`);
  return [limiter.limit, ...(tenancy ? [takeTurns(), permit] : []), scarce, ...(resume ? [resume] : [])];
}

/** A gateway's Dial: what passes all stages goes to a hub, or is opened here. */
export function gatewayDial(options: GatewayStagesOptions): Dial {
  const { observation, directDials, suspects } = options;
  const route = routed(options, suspects);
  const open = directDials?.direct(route) ?? route;
  return pipeline({ role: 'gateway', stages: gatewayStages(options), open, observation });
}

interface GatewayAttachOptions extends Pick<GatewayStagesOptions, 'tenancy'> {
  readonly limiter: Pick<DialLimiter, 'limitAttaches'>;
  /** Passes an attach on to the agent. */
  readonly attach: Attach;
}

/** The way of an attach of `isthmus hold` through a gateway: as a dial's, because hold is a caller. */
export function gatewayAttach({ limiter, tenancy, attach }: GatewayAttachOptions): Attach {
  const permitted: Attach = async (request) => {
    const refusal = tenancy?.permits(request);
    if (!refusal) return attach(request);
    // Final: hold would ask again until it gives the tunnel up.
    const { code, message } = refusal;
    throw new DialError(code, message, { cause: new AttachRefused(message, { final: true, cause: refusal.cause }) });
  };
  return limiter.limitAttaches(tenancy ? attachesInTurns(permitted) : permitted);
}
