/** One kernel: what it has, where, why it waits, and what its owner can do about it. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { gpuName, kernelName, secondsLeft, shareText, stateText } from '../format';
import { Kernel, KernelRequest, Status } from '../schema';
import { Action, IAsked } from '../state';
import { Events } from './events';
import { MemoryBar } from './memoryBar';
import { Reason } from './reason';
import { RequestForm } from './requestForm';

export interface IKernelActions {
  onRequest: (kernelId: string, request: KernelRequest) => void;
  onAct: (kernelId: string, action: Exclude<Action, 'request'>) => void;
  onDismiss: (kernelId: string) => void;
  onOpen: (kernel: Kernel) => void;
}

interface IKernelCardProps extends IKernelActions {
  kernel: Kernel;
  status: Status;
  asked: IAsked | null;
  trans: TranslationBundle;
}

/** Which actions make sense in a state; the server has the last word. */
export function possibleActions(kernel: Kernel): Exclude<Action, 'request'>[] {
  switch (kernel.state) {
    case 'detached':
      return [];
    case 'attached':
      return ['suspend', kernel.pinned ? 'unpin' : 'pin', 'release'];
    case 'suspended':
      return ['resume', kernel.pinned ? 'unpin' : 'pin', 'release'];
    default:
      return ['release'];
  }
}

export function KernelCard(props: IKernelCardProps): JSX.Element {
  const { kernel, asked, trans } = props;
  const [asking, setAsking] = React.useState(false);
  const name = kernelName(kernel);
  const waitsFor = asked !== null && asked.refusal === null ? asked.action : null;
  const refusal = asked?.refusal ?? null;
  return (
    <section className="jp-GpuShare-card" data-state={kernel.state} data-kernel-id={kernel.kernel_id} aria-label={name}>
      <header>
        <button className="jp-GpuShare-name" title={kernel.name} onClick={() => props.onOpen(kernel)}>
          {name}
        </button>
        <span className="jp-GpuShare-state">{stateText(kernel, trans)}</span>
      </header>
      {kernel.state !== 'detached' && <Where kernel={kernel} trans={trans} />}
      {kernel.notice_deadline !== null && <Notice deadline={kernel.notice_deadline} trans={trans} />}
      {hasMemory(kernel) && (
        <MemoryBar memory={kernel.memory_mib} totalMib={kernel.gpu_memory_total_mib} trans={trans} />
      )}
      {kernel.state === 'suspended' && (
        <div className="jp-GpuShare-faint">
          {trans.__('What it held is saved in host memory, and comes back by itself at its next cell.')}
        </div>
      )}
      {kernel.reason !== null && <Reason reason={kernel.reason} position={kernel.queue_position} trans={trans} />}
      {refusal !== null && !(asking && refusal.field !== null) && (
        <div className="jp-GpuShare-refusal" role="alert">
          {refusal.message}{' '}
          <button className="jp-GpuShare-link" onClick={() => props.onDismiss(kernel.kernel_id)}>
            {trans.__('Dismiss')}
          </button>
        </div>
      )}
      {asking ? (
        <RequestForm
          kernel={kernel}
          status={props.status}
          refusal={refusal}
          busy={waitsFor !== null}
          trans={trans}
          onCancel={() => setAsking(false)}
          onSubmit={request => props.onRequest(kernel.kernel_id, request)}
        />
      ) : (
        <Actions {...props} waitsFor={waitsFor} onAsk={() => setAsking(true)} />
      )}
      <FormCloser asked={asked} asking={asking} close={() => setAsking(false)} />
      <Events events={kernel.events} trans={trans} />
    </section>
  );
}

function hasMemory(kernel: Kernel): boolean {
  return kernel.memory_mib.used > 0 || (kernel.gpu_uuid !== null && kernel.memory_mib.guaranteed > 0);
}

/** Closes the form when its request was accepted: asked, and then neither waiting nor refused. Draws nothing. */
function FormCloser(props: { asked: IAsked | null; asking: boolean; close: () => void }): null {
  const waited = React.useRef(false);
  React.useEffect(() => {
    if (waited.current && props.asking && props.asked === null) {
      props.close();
    }
    waited.current = props.asked?.action === 'request' && props.asked.refusal === null;
  });
  return null;
}

function Where({ kernel, trans }: { kernel: Kernel; trans: TranslationBundle }): JSX.Element {
  const parts = [
    shareText(kernel.request),
    shareText(kernel.limit) === null ? null : trans.__('limit %1', shareText(kernel.limit) ?? ''),
    kernel.project,
    kernel.node,
    kernel.gpu_uuid === null ? null : gpuText(kernel.gpu_uuid, kernel.planned_gpu, trans),
    kernel.pinned ? trans.__('pinned') : null
  ].filter(part => part !== null);
  return <div className="jp-GpuShare-where">{parts.join(' · ')}</div>;
}

/** Where it runs; and where it is planned, when that is another GPU. */
function gpuText(actual: string, planned: string | null, trans: TranslationBundle): string {
  return planned === null || gpuName(planned) === gpuName(actual)
    ? trans.__('GPU %1', gpuName(actual))
    : trans.__('GPU %1 (planned: GPU %2)', gpuName(actual), gpuName(planned));
}

/** The countdown of a notice. It keeps its own second hand, so that nothing else is drawn again. */
function Notice({ deadline, trans }: { deadline: string; trans: TranslationBundle }): JSX.Element {
  const [now, setNow] = React.useState(Date.now());
  React.useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 1000);
    return () => window.clearInterval(timer);
  }, [deadline]);
  return (
    <div className="jp-GpuShare-notice" role="status">
      {trans.__('GPU memory will be taken back in %1 s. Save what you need, or release it now.', secondsLeft(deadline, now))}
    </div>
  );
}

interface IActionsProps extends IKernelCardProps {
  waitsFor: Action | null;
  onAsk: () => void;
}

function Actions(props: IActionsProps): JSX.Element {
  const { kernel, trans, waitsFor } = props;
  const labels: { [action in Exclude<Action, 'request'>]: string } = {
    release: kernel.state === 'pending' ? trans.__('Stop waiting') : trans.__('Release'),
    suspend: trans.__('Suspend'),
    resume: trans.__('Resume'),
    pin: trans.__('Pin'),
    unpin: trans.__('Unpin')
  };
  const hints: { [action in Exclude<Action, 'request'>]: string } = {
    release: trans.__('Give the GPU back; the kernel lives on without one'),
    suspend: trans.__('Move the GPU memory into host memory; the kernel lives on'),
    resume: trans.__('Bring the GPU memory back'),
    pin: trans.__('Do not suspend it while it is idle'),
    unpin: trans.__('It may be suspended while it is idle')
  };
  return (
    <div className="jp-GpuShare-actions">
      <button className="jp-GpuShare-button" disabled={waitsFor !== null} onClick={props.onAsk}>
        {kernel.state === 'detached' ? trans.__('Request a GPU share…') : trans.__('Change…')}
      </button>
      {possibleActions(kernel).map(action => (
        <button
          key={action}
          className="jp-GpuShare-button"
          title={hints[action]}
          disabled={waitsFor !== null}
          aria-busy={waitsFor === action}
          onClick={() => props.onAct(kernel.kernel_id, action)}
        >
          {labels[action]}
        </button>
      ))}
    </div>
  );
}
