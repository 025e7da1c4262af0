/** What-if answers: when a request would start, and alternatives. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { isRefused, noticeText } from '../expectedWait';
import { sentence } from '../messages';
import { Alternative, KernelRequest, WhatIfAnswer } from '../schema';
import { Expected } from './expectedWait';

/** With `kernelId`: as a replacement of this kernel's share. */
export type AskWhatIf = (request: KernelRequest, kernelId?: string) => Promise<WhatIfAnswer>;

/** Wait until a person stops typing. */
export const SETTLE_MS = 300;

export type Known = { readonly answer: WhatIfAnswer } | { readonly problem: string } | null;

/** The answer to the current request; null while it is loading. `key`: other dependencies. */
export function useWhatIf(ask: AskWhatIf, request: KernelRequest | null, key = ''): Known {
  const [known, setKnown] = React.useState<Known>(null);
  const text = request === null ? null : JSON.stringify(request);
  React.useEffect(() => {
    setKnown(null);
    if (text === null) {
      return undefined;
    }
    let wanted = true;
    const tell = (value: Known) => wanted && setKnown(value);
    const timer = window.setTimeout(() => {
      ask(JSON.parse(text) as KernelRequest).then(
        answer => tell({ answer }),
        error => tell({ problem: error instanceof Error ? error.message : String(error) })
      );
    }, SETTLE_MS);
    return () => {
      wanted = false;
      window.clearTimeout(timer);
    };
  }, [text, key]);
  return known;
}

interface IExpectationProps {
  known: Known;
  trans: TranslationBundle;
}

/** When a request would start, where, and what it displaces. */
export function Expectation({ known, trans }: IExpectationProps): JSX.Element {
  return (
    <div
      className="jp-GpuShare-expect"
      role="status"
      data-starts={known !== null && 'answer' in known ? known.answer.starts_now : undefined}
    >
      {expectation(known, trans)}
      {known !== null && 'answer' in known && <Expected wait={known.answer.expected_wait} />}
    </div>
  );
}

/** Whether the request can never start, so that the server would refuse it. */
export function isImpossible(known: Known): boolean {
  return known !== null && 'answer' in known && isRefused(known.answer);
}

/** The answer as text. */
export function expectation(known: Known, trans: TranslationBundle): string {
  if (known === null) {
    return trans.__('Checking whether it would start now…');
  }
  if ('problem' in known) {
    return sentence(known.problem);
  }
  const { starts_now, displaces, reason } = known.answer;
  if (isImpossible(known)) {
    return sentence(reason?.message ?? trans.__('Cannot start.'));
  }
  const room = displaces.length === 0 ? '' : ' ' + displacedText(displaces.length, trans);
  if (starts_now) {
    return startText(known.answer, trans) + room;
  }
  if (reason?.code === 'WaitingForReclaim' && displaces.length > 0) {
    const names = displaces.map(one => one.name ?? '').filter(name => name !== '');
    if (names.length === displaces.length) {
      const seconds = Math.round(Math.max(...displaces.map(one => one.notice_ms)) / 1000);
      return trans.__('Would start after a notice of %1 s to %2.', seconds, names.join(', '));
    }
    return trans._n(
      'Would start after displacing %1 other workload.',
      'Would start after displacing %1 other workloads.',
      displaces.length
    );
  }
  return trans.__('Would wait. %1', reason?.message ?? '').trim() + room;
}

/** When it would start, where, and what happens to other notebooks. */
function startText(answer: WhatIfAnswer, trans: TranslationBundle): string {
  const affected = answer.affected ?? []; // missing on older servers
  const warned = affected.filter(one => one.notice_ms > 0).map(one => one.name);
  const start =
    warned.length === 0
      ? startNowText(answer.node, trans)
      : trans.__('Would start after a notice of %1 to %2.', noticeText(answer), warned.join(', '));
  return [start, ...affected.map(one => one.message)].join(' ');
}

function startNowText(node: string | null, trans: TranslationBundle): string {
  return node === null
    ? trans.__('Would start now.')
    : trans.__('Would start now on node %1.', node);
}

function displacedText(count: number, trans: TranslationBundle): string {
  return trans._n('Displaces %1 other workload.', 'Displaces %1 other workloads.', count);
}

/** A request with an alternative's changes; a new amount drops the old limit. */
export function changed(request: KernelRequest, change: KernelRequest): KernelRequest {
  const { gpu, gpu_memory, gpu_limit, ...others } = request;
  return change.gpu === undefined ? { ...request, ...change } : { ...others, ...change };
}

interface IAlternativesProps {
  alternatives: readonly Alternative[];
  /** Called with the fields to change. */
  onChoose: (change: KernelRequest) => void;
  trans: TranslationBundle;
}

/** Requests that would start now, each with a button. */
export function Alternatives({
  alternatives,
  onChoose,
  trans
}: IAlternativesProps): JSX.Element | null {
  if (alternatives.length === 0) {
    return null;
  }
  return (
    <ul className="jp-GpuShare-alternatives">
      {alternatives.map(one => (
        <li key={one.message}>
          {one.message}{' '}
          <button
            type="button"
            className="jp-GpuShare-link"
            onClick={() => onChoose(one.request as KernelRequest)}
          >
            {trans.__('Request this instead')}
          </button>
        </li>
      ))}
    </ul>
  );
}
