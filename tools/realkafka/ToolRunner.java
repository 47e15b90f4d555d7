import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs Kafka's command line tools one after another in one virtual machine, for the tests: read by
 * tests/support/kafka_tools.py.
 *
 * A request is a count of arguments, the arguments (the first is the class), a length and the bytes
 * of standard input; an answer is the exit code, and lengths and bytes of what was printed on
 * standard output and standard error.
 */
public class ToolRunner {
    /** Ends a tool where it would have ended the virtual machine. */
    static final class Stop extends ThreadDeath {
    }

    /** A stream whose other end changes from tool to tool. */
    static final class Switch extends OutputStream {
        volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int value) throws IOException {
            target.write(value);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            target.write(bytes, offset, length);
        }
    }

    static final Switch OUT = new Switch();
    static final Switch ERR = new Switch();
    static Integer code;
    static List<Runnable> hooks = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(new PrintStream(OUT, true, "UTF-8"));
        System.setErr(new PrintStream(ERR, true, "UTF-8"));
        replaceExit();
        while (true) {
            String[] command;
            try {
                command = new String[requests.readInt()];
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < command.length; i++)
                command[i] = requests.readUTF();
            byte[] input = requests.readNBytes(requests.readInt());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            run(command, input, out, err);
            answers.writeInt(code);
            answers.writeInt(out.size());
            out.writeTo(answers);
            answers.writeInt(err.size());
            err.writeTo(answers);
            answers.flush();
        }
    }

    /** Has tools call this class where they would end, or would have something done at the end. */
    static void replaceExit() throws ReflectiveOperationException {
        Class<?> exit = exitClass();
        InvocationHandler stop = (proxy, method, values) -> {
            stop((Integer) values[0]);
            return null;
        };
        set(exit, "setExitProcedure", stop);
        set(exit, "setHaltProcedure", stop);
        set(exit, "setShutdownHookAdder", (proxy, method, values) -> {
            if (!"consumer-shutdown-hook".equals(values[0]))
                hooks.add((Runnable) values[1]);
            return null;
        });
    }

    /** In 4.4 it has another package than in 4.3. */
    static Class<?> exitClass() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        }
    }

    /** Calls a setter of one function, which gets the arguments of each call in an array. */
    static void set(Class<?> exit, String setter, InvocationHandler function) throws ReflectiveOperationException {
        for (Method method : exit.getMethods()) {
            if (!method.getName().equals(setter))
                continue;
            Class<?> type = method.getParameterTypes()[0];
            method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, function));
            return;
        }
        throw new NoSuchMethodException(setter);
    }

    static void run(String[] command, byte[] input, OutputStream out, OutputStream err) throws Exception {
        String[] arguments = new String[command.length - 1];
        System.arraycopy(command, 1, arguments, 0, arguments.length);
        OUT.target = out;
        ERR.target = err;
        System.setIn(new ByteArrayInputStream(input));
        code = null;
        hooks = new ArrayList<>();
        try {
            Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            finish(0);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Stop))
                error.getCause().printStackTrace();
            finish(1);
        }
    }

    static void stop(int status) {
        finish(status);
        throw new Stop();
    }

    /** What a tool prints after its first exit it would not have printed. */
    static void finish(int status) {
        if (code != null)
            return;
        for (Runnable hook : hooks)
            hook.run();
        System.out.flush();
        System.err.flush();
        code = status;
        OUT.target = OutputStream.nullOutputStream();
        ERR.target = OutputStream.nullOutputStream();
    }
}
