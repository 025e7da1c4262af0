/** Which events are shown as notifications, and their texts. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { kernelName, secondsLeft, shareText, timeLeft } from './format';
import { Event, EventKind, Kernel, PendingChange } from './schema';
import { IKernelEvent, LOGGED_OUT, LOST, SILENT } from './state';

export type Tone = 'info' | 'success' | 'warning' | 'error';

export interface IMessage {
  readonly tone: Tone;
  readonly text: string;
}

/**
 * Events that change a notebook's GPU without a request of its owner; others are in the sidebar.
 */
const TONES: { readonly [kind in EventKind]?: Tone } = {
  notice: 'warning',
  moved: 'info',
  killed: 'error',
  reattached: 'success',
  evicted: 'warning',
  lost: 'error'
};

/** The setting that switches notifications of this kind. */
export type NotificationKind = 'notice' | 'moved' | 'evicted' | 'lost' | 'restored';

export function notificationKind(kind: EventKind): NotificationKind | null {
  switch (kind) {
    case 'notice':
    case 'moved':
    case 'evicted':
    case 'lost':
      return kind;
    case 'killed':
      return 'lost';
    case 'reattached':
      return 'restored';
    default:
      return null;
  }
}

/** The notification for an event; null when the event is shown in the sidebar only. */
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
 * The event's message. A kill has a shorter one: JupyterLab cuts notifications after 140
 * characters, and the loss of the variables must not be cut.
 */
function words(event: Event, trans: TranslationBundle): string {
  return event.kind === 'killed'
    ? trans.__(
        'restarted: its GPU memory was reclaimed and could not be saved. Its variables are lost.'
      )
    : event.message;
}

/** The text of a notice while it counts down; null when it is over or was withdrawn. */
export function countdown(kernel: Kernel, now: number, trans: TranslationBundle): string | null {
  if (kernel.notice_deadline === null) {
    return null;
  }
  return secondsLeft(kernel.notice_deadline, now) === 0
    ? null
    : trans.__(
        '%1: GPU memory will be reclaimed in %2.',
        kernelName(kernel),
        timeLeft(kernel.notice_deadline, now)
      );
}

const DEATHS = ['killed', 'lost', 'evicted'];
/** An older event does not explain why the kernel died now. */
const RECENT_MS = 60_000;

/** Why a kernel died, as far as GPU sharing is concerned. */
export function deathReason(kernel: Kernel | null, now: number, trans: TranslationBundle): string {
  const event =
    kernel === null ? undefined : [...kernel.events].reverse().find(one => isDeath(one, now));
  if (event !== undefined) {
    return trans.__('GPU share: %1', event.message);
  }
  return trans.__('GPU share did not cause this. The kernel may have run out of RAM, or crashed.');
}

function isDeath(event: Event, now: number): boolean {
  return DEATHS.includes(event.kind) && now - Date.parse(event.time) < RECENT_MS;
}

/** A problem, translated where the text is ours. */
export function problemText(problem: string | null, trans: TranslationBundle): string {
  switch (problem) {
    case LOST:
      return trans.__('The connection to the Jupyter server was lost.');
    case SILENT:
      return trans.__('The Jupyter server does not respond.');
    case LOGGED_OUT:
      return trans.__(
        'You are not logged in any more: the Jupyter server was restarted with a new token. Open the address that it printed, or log in.'
      );
    default:
      return sentence(problem ?? '');
  }
}

/** A server's message as a sentence: capitalized, with a full stop. */
export function sentence(text: string): string {
  const words = text.trim();
  return words === ''
    ? ''
    : `${words[0].toUpperCase()}${words.slice(1)}${/[.!?…]$/.test(words) ? '' : '.'}`;
}

/** A pending request that replaces the current share when it is granted. */
export function changeText(change: PendingChange, trans: TranslationBundle): string {
  const share = shareText(change.request) ?? '';
  return trans.__('Change to %1: waiting. The current share stays until then.', share);
}
