/** Which events a person is told about while looking elsewhere, and in which words. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { kernelName, secondsLeft, timeLeft } from './format';
import { Event, EventKind, Kernel } from './schema';
import { IKernelEvent, LOST, SILENT } from './state';

export type Tone = 'info' | 'success' | 'warning' | 'error';

export interface IMessage {
  readonly tone: Tone;
  readonly text: string;
}

/** Only what changes the notebook's GPU without its owner having asked; the rest is in the sidebar. */
const TONES: { readonly [kind in EventKind]?: Tone } = {
  notice: 'warning',
  moved: 'info',
  killed: 'error',
  reattached: 'success',
  evicted: 'warning',
  lost: 'error'
};

/** The message for an event; null when it is none of those worth interrupting for. */
export function messageOf(
  { kernel, event }: IKernelEvent,
  trans: TranslationBundle
): IMessage | null {
  const tone = TONES[event.kind];
  return tone === undefined
    ? null
    : { tone, text: `${kernelName(kernel)}: ${words(event, trans)}` };
}

/**
 * The event's own sentences; only a kill has shorter ones. JupyterLab cuts a notification after 140 characters, and what
 * was lost must not be cut off; the whole story is in the sidebar.
 */
function words(event: Event, trans: TranslationBundle): string {
  return event.kind === 'killed'
    ? trans.__(
        'restarted, because its GPU memory was needed and could not be saved. Its variables are lost.'
      )
    : event.message;
}

/** The words of a notice while it counts down; null when it is over or was withdrawn. */
export function countdown(kernel: Kernel, now: number, trans: TranslationBundle): string | null {
  if (kernel.notice_deadline === null) {
    return null;
  }
  return secondsLeft(kernel.notice_deadline, now) === 0
    ? null
    : trans.__(
        '%1: GPU memory will be taken back in %2.',
        kernelName(kernel),
        timeLeft(kernel.notice_deadline, now)
      );
}

const DEATHS = ['killed', 'lost', 'evicted'];
/** What happened longer ago is no reason for a death now. */
const RECENT_MS = 60_000;

/** Why a kernel died, as far as its GPU share is concerned. Pure. */
export function deathReason(kernel: Kernel | null, now: number, trans: TranslationBundle): string {
  const event =
    kernel === null ? undefined : [...kernel.events].reverse().find(one => isDeath(one, now));
  if (event !== undefined) {
    return trans.__('GPU share: %1', event.message);
  }
  return trans.__(
    'GPU share did not do this: no GPU memory was taken from this kernel. Often the machine ran out of memory (RAM), or the program crashed.'
  );
}

function isDeath(event: Event, now: number): boolean {
  return DEATHS.includes(event.kind) && now - Date.parse(event.time) < RECENT_MS;
}

/** A problem in the reader's language where its words are ours. */
export function problemText(problem: string | null, trans: TranslationBundle): string {
  switch (problem) {
    case LOST:
      return trans.__('The connection to the Jupyter server was lost.');
    case SILENT:
      return trans.__('The Jupyter server does not answer.');
    default:
      return sentence(problem ?? '');
  }
}

/** What a server says, as a sentence: errors of programs begin small and end without a full stop. */
export function sentence(text: string): string {
  const words = text.trim();
  return words === ''
    ? ''
    : `${words[0].toUpperCase()}${words.slice(1)}${/[.!?…]$/.test(words) ? '' : '.'}`;
}
