import { changeAgents, changeServer, type Make } from '../page.ts';
import type { Fault } from './fault.ts';

/**
 * The new agent is there before the old one leaves. ANP's drains until the kubelet kills it, 30 s later, with a webhook's connection that is used
 * again and again, and ANP's server may have given it a call by then. If that call's connection goes just before the answer, kubectl says
 * nothing (measured: 54 ms after the kill).
 */
const AGENT_GONE = /[Nn]o agent available|error dialing backend|connection reset by peer|: (unexpected )?EOF$/;
/** ANP's server does not end a dial whose agent is gone (pkg/server/server.go, "TODO(#126)"), so that waits for its backstop. */
const AGENT_OF_ANP_GONE = new RegExp(`${AGENT_GONE.source}|: dial timeout, backstop$`);
/** ANP's server refuses calls until agents are back, which try again after about 11 s at most. Ours has the calls wait. */
const NO_AGENT_YET = /[Nn]o agent available/;

/** docs/KUBERNETES.md, every step of it and every step back. */
export const SERVER_FIRST: readonly Fault[] = [server('ANP', 'Isthmus', 'ANP')];
export const THEN_AGENTS: readonly Fault[] = [agents('ANP', 'Isthmus', 'Isthmus')];
export const SERVER_BACK: readonly Fault[] = [server('Isthmus', 'ANP', 'Isthmus')];
export const AGENTS_BACK_AND_FIRST: readonly Fault[] = [
  agents('Isthmus', 'ANP', 'ANP'),
  agents('ANP', 'Isthmus', 'ANP'),
  server('ANP', 'Isthmus', 'Isthmus'),
];

/** @param with what the agents are meanwhile */
function server(from: Make, to: Make, agents: Make): Fault {
  const mayFail = to === 'ANP' ? { mayFail: NO_AGENT_YET } : {};
  return {
    name: `server: ${from} to ${to}, agents ${agents}`,
    ...mayFail,
    mayCut: true,
    mayCutAdmissions: true,
    commit: ({ load }) => changeServer(to, load),
  };
}

/** @param server what the server is meanwhile */
function agents(from: Make, to: Make, server: Make): Fault {
  return {
    name: `agents: ${from} to ${to}, server ${server}`,
    mayFail: server === 'ANP' ? AGENT_OF_ANP_GONE : AGENT_GONE,
    oneSilent: true,
    mayCut: true,
    commit: () => changeAgents(to),
  };
}
