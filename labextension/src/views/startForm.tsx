/** The form of a new notebook: kernel, share, project, and when it would start. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { isRefused } from '../expectedWait';
import { KernelRequest } from '../schema';
import { IRequestError, IState } from '../state';
import { ConnectionLine } from './panel';
import { Projects } from './projects';
import { Field } from './field';
import { focusTarget, RequestForm } from './requestForm';
import { AskWhatIf } from './whatIf';

interface IStartFormProps {
  state: IState;
  kernels: readonly { readonly name: string; readonly display_name: string }[];
  firstKernel: string;
  onWhatIf: AskWhatIf;
  onStart: (kernel: string, request: KernelRequest) => void;
  onCancel: () => void;
  onRetry: () => void;
  trans: TranslationBundle;
}

export function StartForm(props: IStartFormProps): JSX.Element {
  const { state, kernels, trans } = props;
  const [kernel, setKernel] = React.useState(props.firstKernel);
  const [checking, setChecking] = React.useState(false);
  const [refusal, setRefusal] = React.useState<IRequestError | null>(null);
  const body = React.useRef<HTMLDivElement>(null);
  const isReady = state.status !== null;
  React.useEffect(() => focusTarget(body.current)?.focus(), [isReady]);
  const start = (request: KernelRequest) => {
    setChecking(true);
    void serverError(request, props.onWhatIf).then(mistake => {
      setChecking(false);
      setRefusal(mistake);
      if (mistake === null) {
        props.onStart(kernel, request);
      }
    });
  };
  return (
    <div ref={body}>
      <ConnectionLine state={state} onRetry={props.onRetry} trans={trans} />
      {state.status !== null && (
        <RequestForm
          id="gpushare-start"
          kernel={null}
          choices={{ ...state.status, defaultShare: state.defaultShare }}
          refusal={refusal}
          busy={checking}
          onSubmit={start}
          onCancel={props.onCancel}
          onWhatIf={props.onWhatIf}
          aboutProject={project => (
            <Projects projects={state.projects} order={[]} only={project} trans={trans} />
          )}
          trans={trans}
        >
          <Field id="gpushare-start-kernel" label={trans.__('Kernel')} name="kernel" refusal={null}>
            <select
              id="gpushare-start-kernel"
              value={kernel}
              onChange={event => setKernel(event.target.value)}
            >
              {kernels.map(spec => (
                <option key={spec.name} value={spec.name}>
                  {spec.display_name}
                </option>
              ))}
            </select>
          </Field>
        </RequestForm>
      )}
    </div>
  );
}

/** The error of an invalid request, found before a notebook is created; null when it is valid. */
async function serverError(request: KernelRequest, ask: AskWhatIf): Promise<IRequestError | null> {
  try {
    const answer = await ask(request);
    // the form shows why it cannot start
    return isRefused(answer) ? { field: null, message: '' } : null;
  } catch (error) {
    const { field = null, message } = error as Error & Partial<IRequestError>;
    return field === null ? null : { field, message };
  }
}
