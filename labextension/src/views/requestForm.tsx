/** Asking for a share, or for another one. Amounts go to the server as typed; it names the field that it cannot read. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Kernel, KernelRequest, Status } from '../schema';
import { IRefusal } from '../state';

interface IRequestFormProps {
  kernel: Kernel;
  status: Status;
  refusal: IRefusal | null;
  busy: boolean;
  onSubmit: (request: KernelRequest) => void;
  onCancel: () => void;
  trans: TranslationBundle;
}

const PRESETS = ['0.25', '0.5', '1'] as const;

type Unit = 'gpu' | 'gpu_memory';

export function RequestForm(props: IRequestFormProps): JSX.Element {
  const { kernel, status, refusal, busy, trans } = props;
  const [unit, setUnit] = React.useState<Unit>(kernel.request.gpu_memory_mib === null ? 'gpu' : 'gpu_memory');
  const [amount, setAmount] = React.useState(startAmount(kernel));
  const [limit, setLimit] = React.useState(kernel.limit.gpu === null ? '' : String(kernel.limit.gpu));
  const [project, setProject] = React.useState(kernel.project ?? status.projects[0] ?? '');
  const [pool, setPool] = React.useState('');
  const [priority, setPriority] = React.useState('');
  const id = (field: string) => `gpushare-${kernel.kernel_id}-${field}`;

  const submit = (event: React.FormEvent) => {
    event.preventDefault();
    props.onSubmit({
      [unit]: amount.trim(),
      ...(limit.trim() === '' ? {} : { gpu_limit: limit.trim() }),
      ...(project === '' ? {} : { project }),
      ...(pool === '' ? {} : { node_pools: [pool] }),
      ...(priority === '' ? {} : { priority_class: priority })
    });
  };

  const choice = (field: string, label: string, value: string, set: (value: string) => void, options: string[]) =>
    options.length > 0 && (
      <Field id={id(field)} label={label} refusal={refusal} name={field}>
        <select id={id(field)} value={value} onChange={event => set(event.target.value)}>
          {field !== 'project' && <option value="">{trans.__('as the project says')}</option>}
          {options.map(option => (
            <option key={option}>{option}</option>
          ))}
        </select>
      </Field>
    );

  return (
    <form className="jp-GpuShare-form" onSubmit={submit} aria-label={trans.__('Request a GPU share')}>
      <div className="jp-GpuShare-presets">
        {PRESETS.map(preset => (
          <button
            key={preset}
            type="button"
            className="jp-GpuShare-button"
            aria-pressed={unit === 'gpu' && amount === preset}
            onClick={() => {
              setUnit('gpu');
              setAmount(preset);
            }}
          >
            {PRESET_NAMES[preset]}
          </button>
        ))}
      </div>
      <Field id={id('gpu')} label={trans.__('Share')} refusal={refusal} name={unit}>
        <span className="jp-GpuShare-amount">
          <input
            id={id('gpu')}
            value={amount}
            required
            placeholder={unit === 'gpu' ? '0.5' : '20GiB'}
            onChange={event => setAmount(event.target.value)}
          />
          <select
            aria-label={trans.__('Unit of the share')}
            value={unit}
            onChange={event => {
              setUnit(event.target.value as Unit);
              setAmount('');
            }}
          >
            <option value="gpu">{trans.__('GPUs')}</option>
            <option value="gpu_memory">{trans.__('GPU memory')}</option>
          </select>
        </span>
      </Field>
      <Field id={id('gpu_limit')} label={trans.__('Limit (GPUs)')} refusal={refusal} name="gpu_limit">
        <input
          id={id('gpu_limit')}
          value={limit}
          placeholder={trans.__('the whole GPU')}
          onChange={event => setLimit(event.target.value)}
        />
      </Field>
      {choice('project', trans.__('Project'), project, setProject, status.projects)}
      {choice('node_pools', trans.__('Node pool'), pool, setPool, status.node_pools)}
      {choice('priority_class', trans.__('Priority'), priority, setPriority, status.priority_classes)}
      <div className="jp-GpuShare-actions">
        <button type="submit" className="jp-GpuShare-button jp-mod-accept" disabled={busy}>
          {trans.__('Request')}
        </button>
        <button type="button" className="jp-GpuShare-button" onClick={props.onCancel}>
          {trans.__('Cancel')}
        </button>
      </div>
    </form>
  );
}

const PRESET_NAMES: { readonly [preset in (typeof PRESETS)[number]]: string } = {
  '0.25': '¼ GPU',
  '0.5': '½ GPU',
  '1': '1 GPU'
};

function startAmount(kernel: Kernel): string {
  const { gpu, gpu_memory_mib } = kernel.request;
  return gpu_memory_mib !== null ? `${gpu_memory_mib}MiB` : String(gpu ?? 0.5);
}

interface IFieldProps {
  id: string;
  label: string;
  name: string;
  refusal: IRefusal | null;
  children: React.ReactNode;
}

/** A labelled input; the refusal stands beside the field that it names. */
function Field({ id, label, name, refusal, children }: IFieldProps): JSX.Element {
  return (
    <div className="jp-GpuShare-field">
      <label htmlFor={id}>{label}</label>
      {children}
      {refusal !== null && refusal.field === name && (
        <div className="jp-GpuShare-refusal" role="alert">
          {refusal.message}
        </div>
      )}
    </div>
  );
}
